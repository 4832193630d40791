"""Use the installed package as a new user would: learn, save, load, take the policy away."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

import fedlsvi
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.policy import Policy

assert Path(fedlsvi.__file__).is_relative_to(sys.prefix), "this is not the installed package"
assert (Path(fedlsvi.__file__).parent / "py.typed").exists()
assert version("fedlsvi") == fedlsvi.__version__

env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=0)
run = fedlsvi.FedLSVI(n_agents=4).learn(env, episodes=2_000, seed=0, progress=False)
found = run.references()
assert found["uniform"] < found["learned"] <= found["optimal"] + 1e-12, found
run.save("saved")
assert np.array_equal(fedlsvi.load("saved").regret, run.regret)
run.policy.save("policy")
assert Policy.load("policy").action(3, 1) == run.policy.action(3, 1)
print(f"learned {found['learned']:.3f}, optimal {found['optimal']:.3f}")

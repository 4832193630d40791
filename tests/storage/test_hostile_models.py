"""Files from someone else: an earlier model as the prior of a run, evaluations.json, and a policy
where not every action is allowed."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.core.value import settle
from fedlsvi.envs import RandomLinearMDP, RandomMDP
from fedlsvi.envs.allowed import restrict
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.errors import FedLSVIError, InvalidInput, InvalidSetting
from fedlsvi.policy import Policy
from fedlsvi.protocol.warm_start import Prior
from fedlsvi.report.estimates import estimates
from fedlsvi.storage import files, load
from fedlsvi.storage.settings_file import Job, for_learn

H, D = 3, 12
PRIORS = {
    "nan": (np.full((H, D), np.nan), np.ones((H, D))),
    "too large": (np.full((H, D), 1e308), np.ones((H, D))),
    "infinite Λ": (np.zeros((H, D)), np.full((H, D), np.inf)),
    "Λ of NaN": (np.zeros((H, D)), np.full((H, D), np.nan)),
    "negative Λ": (np.zeros((H, D)), np.full((H, D), -1.0)),
    "integers": (np.zeros((H, D), int), np.ones((H, D), int)),
    "booleans": (np.zeros((H, D), bool), np.ones((H, D), bool)),
    "one number": (np.zeros(()), np.ones(())),
    "nothing": (np.zeros((0, D)), np.ones((0, D))),
}
"""w and Λ of a model that no run has."""

ODD: tuple[Any, ...] = ("x", float("nan"), float("inf"), -1, 10**400, [], {}, True, None)


def begin(folder: Path, **beside: Any) -> None:
    """Play a few episodes after the model that is in the folder, as a settings file names it."""
    env = {"name": "random-mdp", "n_states": 4, "n_actions": D // 4, "horizon": H, "seed": 1}
    start = {"file": "prior.safetensors", **beside}
    job = Job.parse({"n_agents": 1, "env": env, "warm_start": start}, folder)
    worlds, known = job.known_before(job.environments())
    job.learner().learn(worlds, 4, progress=False, threads=1, **for_learn(known))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", PRIORS)
def test_a_prior_that_no_run_has_is_refused(what: str, tmp_path: Path) -> None:
    """NaN and infinity were learned with: the model of the new run was NaN, without a word."""
    w, gram = PRIORS[what]
    save_file({"w": w, "gram": gram}, tmp_path / "prior.safetensors")
    with pytest.raises(FedLSVIError):
        begin(tmp_path)


def test_a_prior_that_is_not_symmetric_is_refused() -> None:
    env = RandomLinearMDP(6, 3, 4, horizon=2, seed=1)
    gram = np.tile(np.triu(np.ones((4, 4))) + 9 * np.eye(4), (2, 1, 1))
    prior = Prior(np.zeros((2, 4)), gram, 1.0, 1.0, 9)
    with refused(InvalidSetting, "bad-prior", "symmetric"):
        FedLSVI(n_agents=1, stationary=False).prepare(env, 3, prior=prior)


@pytest.mark.parametrize("key", ["weight", "lam", "samples"])
def test_odd_numbers_beside_a_prior_are_refused(key: str, tmp_path: Path) -> None:
    save_file({"w": np.zeros((H, D)), "gram": np.ones((H, D))}, tmp_path / "prior.safetensors")
    begin(tmp_path, weight=0.5, lam=1.0, samples=9)
    for value in ODD:
        with refused(InvalidSetting, f"bad-{key}"):
            begin(tmp_path, **{key: value})


ESTIMATED: dict[str, Any] = {
    "data": ["a.parquet"], "stationary": False, "played": 6, "repeats": 3, "episodes": 5,
    "scalars": 9, "value": 0.5, "unseen": 0.1, "pessimistic": 0.2, "optimistic": 0.3,
    "behaviour": 0.4, "low": 0.1, "high": 0.2, "behaviour_low": 0.1, "behaviour_high": 0.2,
    "importance": 0.3, "effective": 4.0, "importance_low": 0.2, "importance_high": 0.4,
    "robust": 0.3, "robust_low": 0.2, "robust_high": 0.4,
}  # fmt: skip
MEASURED: dict[str, Any] = {
    "environment": "x", "played": 6, "episodes": 4, "mean": 0.4, "low": 0.1, "high": 0.3
}  # fmt: skip
TAG = "<script>alert(1)</script>"
HOSTILE: tuple[Any, ...] = (
    None, float("nan"), float("inf"), 1e308, -1, 2**63 - 1, 10**400, TAG, [TAG], [], {}, True,
)  # fmt: skip


def test_hostile_evaluations_are_shown_or_refused(tmp_path: Path) -> None:
    """Every field in turn, sealed again: the report has a number, a dash or the text as text."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    folder = tmp_path / "run"
    FedLSVI(n_agents=1).learn(env, 6, progress=False, threads=1, folder=folder)
    run, ends = load(folder), Counter[str]()
    honest = {"format": files.FORMAT, "estimated": [ESTIMATED], "measured": [MEASURED]}
    for kind, entry in (("estimated", ESTIMATED), ("measured", MEASURED)):
        for key, bad in itertools.product(entry, HOSTILE):
            changed = honest | {kind: [entry | {key: bad}]}
            (folder / "evaluations.json").write_bytes(files.sealed(changed))
            try:
                page = "".join(estimates(run, {"learned": 0.3}))
            except FedLSVIError as error:
                ends[error.code] += 1
            else:
                ends["shown"] += 1
                assert "<script" not in page
    assert set(ends) == {"shown", "damaged"}
    assert ends["shown"] > len(HOSTILE)


def test_a_policy_takes_no_action_that_is_not_allowed(tmp_path: Path) -> None:
    """An altered table of actions, sealed again, was played: no file holds the masks of a table."""
    mask = np.ones((4, 3), bool)
    mask[2, 1] = False
    env = restrict(RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1), mask)
    FedLSVI(n_agents=1).learn(env, 6, progress=False, threads=1).policy.save(tmp_path)
    assert len(evaluate_policy(Policy.load(tmp_path), env, 50).returns) == 50
    arrays = files.read_arrays(tmp_path / "policy.safetensors")
    head = files.read_json(tmp_path / "policy.json", {str: object})
    arrays["actions"][:] = 1
    stamp = files.write_arrays(tmp_path / "policy.safetensors", arrays)
    files.write_json(tmp_path / "policy.json", head | {"arrays": stamp})
    with refused(InvalidInput, "action-not-allowed", "state 2"):
        evaluate_policy(Policy.load(tmp_path), env, 50)


@pytest.mark.parametrize("numbers", [np.nan, np.inf, -np.inf, -1e308])
def test_no_score_makes_a_policy_leave_its_mask(numbers: float) -> None:
    """A policy that is told its mask chooses among these actions, whatever its file says."""
    scores = np.full((5, 4), numbers)
    scores[:2, 0] = np.inf
    allowed = np.tile([False, True, False, True], (5, 1))
    values, greedy = np.empty(5), np.empty(5, np.int32)
    settle(scores, allowed, 1.0, values, greedy)
    assert set(greedy) <= {1, 3}

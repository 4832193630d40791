"""The environments of this package as Gymnasium ids, `fedlsvi/<Name>-v0`.

Gymnasium calls `register` by itself when it is imported (entry point `gymnasium.envs`), so this
module imports nothing else of the package.
"""

from __future__ import annotations

IDS = {
    "fedlsvi/RandomLinearMDP-v0": "random-linear",
    "fedlsvi/HardChain-v0": "hard-chain",
    "fedlsvi/CombinationLock-v0": "combination-lock",
    "fedlsvi/RiverSwim-v0": "river-swim",
    "fedlsvi/NChain-v0": "n-chain",
    "fedlsvi/DeepSea-v0": "deep-sea",
    "fedlsvi/Garnet-v0": "garnet",
    "fedlsvi/RandomMDP-v0": "random-mdp",
    "fedlsvi/ContinuousLinearMDP-v0": "continuous-linear",
    "fedlsvi/XiCloseMDP-v0": "xi-close",
}
"""Gymnasium id → name in the registry of environments."""


def register_all() -> None:
    """Make every id known to Gymnasium; those that are known already are left alone."""
    from gymnasium.envs.registration import register, registry

    for id, name in IDS.items():
        if id not in registry:
            register(id, entry_point="fedlsvi.envs.gym.export:MDPEnv", kwargs={"name": name})


def register() -> None:
    """What the entry point calls: Gymnasium has set the namespace, ids come without it."""
    from gymnasium.envs.registration import register as add

    for id, name in IDS.items():
        add(
            id.removeprefix("fedlsvi/"),
            entry_point="fedlsvi.envs.gym.export:MDPEnv",
            kwargs={"name": name},
        )

"""Environments: finite and continuous MDPs that check themselves and know their own optimum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlsvi.registry import lazy_exports

if TYPE_CHECKING:
    from fedlsvi.envs.allowed import restrict as restrict
    from fedlsvi.envs.base import Environment as Environment
    from fedlsvi.envs.chains import DeepSea as DeepSea
    from fedlsvi.envs.chains import NChain as NChain
    from fedlsvi.envs.chains import RiverSwim as RiverSwim
    from fedlsvi.envs.conformance import check_env as check_env
    from fedlsvi.envs.continuous import ContinuousMDP as ContinuousMDP
    from fedlsvi.envs.continuous_linear import ContinuousLinearMDP as ContinuousLinearMDP
    from fedlsvi.envs.finite import FiniteMDP as FiniteMDP
    from fedlsvi.envs.garnet import Garnet as Garnet
    from fedlsvi.envs.garnet import RandomMDP as RandomMDP
    from fedlsvi.envs.gym.convert import GymMDP as GymMDP
    from fedlsvi.envs.gym.convert import as_environment as as_environment
    from fedlsvi.envs.gym.convert import gymnasium as gymnasium
    from fedlsvi.envs.gym.world import GymWorld as GymWorld
    from fedlsvi.envs.hard import CombinationLock as CombinationLock
    from fedlsvi.envs.hard import HardChain as HardChain
    from fedlsvi.envs.heterogeneous import XiCloseMDP as XiCloseMDP
    from fedlsvi.envs.heterogeneous import xi_close as xi_close
    from fedlsvi.envs.linear import LinearMDP as LinearMDP
    from fedlsvi.envs.linear import RandomLinearMDP as RandomLinearMDP
    from fedlsvi.envs.linear_mixture import LinearMixtureMDP as LinearMixtureMDP
    from fedlsvi.envs.linear_mixture import RandomLinearMixtureMDP as RandomLinearMixtureMDP
    from fedlsvi.envs.registry import from_spec as from_spec
    from fedlsvi.envs.registry import make as make
    from fedlsvi.envs.registry import names as names
    from fedlsvi.envs.registry import register as register
    from fedlsvi.logs.recording import record_episodes as record_episodes
    from fedlsvi.logs.recording import write_records as write_records
    from fedlsvi.logs.world import LoggedWorld as LoggedWorld
    from fedlsvi.logs.world import logged_worlds as logged_worlds

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".logs.recording": "record_episodes write_records",
        ".logs.world": "LoggedWorld logged_worlds",
        "allowed": "restrict",
        "base": "Environment",
        "chains": "DeepSea NChain RiverSwim",
        "conformance": "check_env",
        "continuous": "ContinuousMDP",
        "continuous_linear": "ContinuousLinearMDP",
        "finite": "FiniteMDP",
        "garnet": "Garnet RandomMDP",
        "gym.convert": "GymMDP as_environment gymnasium",
        "gym.world": "GymWorld",
        "hard": "CombinationLock HardChain",
        "heterogeneous": "XiCloseMDP xi_close",
        "linear": "LinearMDP RandomLinearMDP",
        "linear_mixture": "LinearMixtureMDP RandomLinearMixtureMDP",
        "registry": "from_spec make names register",
    },
)

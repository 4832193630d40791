"""Environments: finite and continuous MDPs that check themselves and know their own optimum."""

from fedlsvi.envs.base import Environment
from fedlsvi.envs.chains import DeepSea, NChain, RiverSwim
from fedlsvi.envs.conformance import check_env
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.continuous_linear import ContinuousLinearMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.garnet import Garnet, RandomMDP
from fedlsvi.envs.gym.convert import GymMDP, as_environment, gymnasium
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.envs.hard import CombinationLock, HardChain
from fedlsvi.envs.heterogeneous import XiCloseMDP, xi_close
from fedlsvi.envs.linear import LinearMDP, RandomLinearMDP
from fedlsvi.envs.registry import from_spec, make, names, register

__all__ = [
    "CombinationLock",
    "ContinuousLinearMDP",
    "ContinuousMDP",
    "DeepSea",
    "Environment",
    "FiniteMDP",
    "Garnet",
    "GymMDP",
    "GymWorld",
    "HardChain",
    "LinearMDP",
    "NChain",
    "RandomLinearMDP",
    "RandomMDP",
    "RiverSwim",
    "XiCloseMDP",
    "as_environment",
    "check_env",
    "from_spec",
    "gymnasium",
    "make",
    "names",
    "register",
    "xi_close",
]

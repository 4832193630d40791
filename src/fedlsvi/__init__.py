"""Federated online reinforcement learning with linear function approximation.

>>> from fedlsvi import FedLSVI
>>> from fedlsvi.envs import RandomLinearMDP
>>> env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=0)
>>> run = FedLSVI(n_agents=8).learn(env, episodes=2_000, seed=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedlsvi.algorithms.pevi import PEVI, offline
    from fedlsvi.errors import FedLSVIError
    from fedlsvi.learner import FedLSVI
    from fedlsvi.protocol.records import STOP
    from fedlsvi.run import Run
    from fedlsvi.storage import load, resume

__all__ = [
    "PEVI",
    "STOP",
    "FedLSVI",
    "FedLSVIError",
    "Run",
    "__version__",
    "load",
    "offline",
    "resume",
]

_HOME = {
    "FedLSVI": "learner",
    "FedLSVIError": "errors",
    "PEVI": "algorithms.pevi",
    "offline": "algorithms.pevi",
    "STOP": "protocol.records",
    "Run": "run",
    "load": "storage",
    "resume": "storage",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import fedlsvi` and the shell's help stay instant."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedlsvi' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"fedlsvi.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__

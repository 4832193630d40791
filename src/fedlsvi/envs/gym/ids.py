"""Gymnasium ids: finding those of other packages, and registering this package's own.

Gymnasium calls `register` itself when it is imported (entry point `gymnasium.envs`).
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from fedlsvi.errors import FedLSVIError, InvalidEnvironment, UnknownName
from fedlsvi.registry import load_extensions

HOMES = {
    "Sepsis": "icu_sepsis",
    "mobile": "mobile_env",
    "MiniGrid": "minigrid",
    "BabyAI": "minigrid",
}
"""Packages whose ids are known: namespace or first word of the id → module that registers it."""

POOL = "envpool"
"""Package whose ids are stepped many at a time (`envpool_ids`)."""

IDS = {
    "fedlsvi/RandomLinearMDP-v0": "random-linear",
    "fedlsvi/RandomLinearMixtureMDP-v0": "random-linear-mixture",
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
"""Gymnasium ids of this package's environments → names in the registry of environments."""


def register_all() -> None:
    """Register every id of this package with Gymnasium; known ones are left alone."""
    _register("")


def register() -> None:
    """What the entry point calls: Gymnasium has set the namespace, so ids come without it."""
    _register("fedlsvi/")


def _register(namespace: str) -> None:
    from gymnasium.envs.registration import register as add
    from gymnasium.envs.registration import registry

    for id, name in IDS.items():
        if id not in registry:
            entry = "fedlsvi.envs.gym.export:MDPEnv"
            add(id.removeprefix(namespace), entry_point=entry, kwargs={"name": name})


def find_spec(id: str) -> Any:
    """The spec of a Gymnasium id, whose package is imported where it is known."""
    gym = package()
    load_extensions()  # one of them may have registered the id
    module, _, name = id.rpartition(":")
    word = name.replace("/", "-").split("-")[0]
    try:
        if module == POOL:
            return importlib.import_module("fedlsvi.envs.gym.envpool_ids").spec_of(id)
        if module:
            importlib.import_module(module)
        elif word in HOMES and name not in gym.registry:
            # ICU-Sepsis imports the old gym, which warns and prints an advertisement
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(HOMES[word])
        elif word == "fedlsvi" and name not in gym.registry:
            register_all()
    except UnknownName:
        raise
    except Exception as error:  # whatever a module raises while it is imported
        raise _unloaded(id, module or HOMES.get(word, word), error) from error
    if name not in gym.registry:
        space, slash, _ = name.rpartition("/")
        foreign = slash and not any(known.startswith(f"{space}/") for known in gym.registry)
        near = [] if foreign else ids_like(name)
        if near:
            raise UnknownName("environment", id, near)
        what = f"the namespace '{space}'" if foreign else "it"
        raise InvalidEnvironment(
            f"unknown environment '{id}': no package has registered {what}. Import the package "
            f"that does, or write 'package:{name}' with its module",
            code="unknown-environment",
        )
    return gym.spec(name)


def _unloaded(id: str, module: str, error: Exception) -> InvalidEnvironment:
    """The error for an id whose module was not found, or was found and failed."""
    top = module.split(".")[0]
    fix = typed = "fix that module, or install what it lacks"
    if isinstance(error, ModuleNotFoundError) and error.name in (module, top):
        fix = typed = f"pip install {top.replace('_', '-')}"
        if module not in (POOL, *HOMES.values()):
            fix += " if it is a package; if it is your own file, put its folder on sys.path"
            typed += f" if it is a package; if it is your own file, --import {top}.py"
    said = " ".join(str(error).split())
    return InvalidEnvironment(
        f"env '{id}' needs module '{module}', which cannot be imported "
        f"({type(error).__name__}: {said})",
        code="import-failed",
        hint=fix,
        shell_hint=typed,
    )


def looks_like_id(name: str) -> bool:
    """Whether a name is a Gymnasium id: it ends in -v and a number, has a package before it, or was
    registered (then Gymnasium is imported already)."""
    stem, dash, version = name.rpartition("-v")
    known = getattr(sys.modules.get("gymnasium"), "registry", ())
    return (bool(stem and dash) and version.isdigit()) or ":" in name or name in known


def is_registered(spec: Any) -> bool:
    """Whether the id of an `EnvSpec` makes the same environment, given its kwargs and time limit.

    Raises:
        InvalidEnvironment: One of its wrappers keeps no record of its arguments.
    """
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            raise InvalidEnvironment(
                f"env is a single {spec.id} in a {wrapper.name}, which does not record how it was "
                "made, but every agent needs its own copies: give a function that makes one, "
                "env=lambda: ...",
                code="single-environment",
            )
    known = package().registry.get(spec.id)
    same = known is not None and known.entry_point == spec.entry_point
    return same and not spec.additional_wrappers


def package() -> Any:
    """Gymnasium itself."""
    try:
        return importlib.import_module("gymnasium")
    except ImportError:
        raise InvalidEnvironment(
            "a Gymnasium environment needs Gymnasium: pip install 'fedlsvi[gym]'",
            code="missing-package",
        ) from None


def ids_like(name: str) -> list[str]:
    """The registered id that is nearest to a name; none where Gymnasium is not installed."""
    try:
        return difflib.get_close_matches(name, package().registry, n=1, cutoff=0.5)
    except InvalidEnvironment:
        return []


def make_copy(spec: Any, options: dict[str, Any], horizon: int, **more: Any) -> Any:
    """A copy of a spec's environment; `more` goes before the options."""
    given = options | more
    try:
        with needing(spec.id):
            # the horizon is ours: an earlier time limit would cut episodes short
            return package().make(
                spec, max_episode_steps=horizon, disable_env_checker=True, **given
            )
    except FedLSVIError:
        raise
    except Exception as error:
        raise InvalidEnvironment(
            f"env '{spec.id}' cannot be made with kwargs = {given}: it raised "
            f"{type(error).__name__}: {error}",
            code="factory-raised",
        ) from error


@contextlib.contextmanager
def needing(id: str) -> Iterator[None]:
    """Turn a missing package of an environment into one sentence."""
    try:
        yield
    except (ImportError, package().error.DependencyNotInstalled) as error:
        raise InvalidEnvironment(
            f"env '{id}' needs a package that is not installed: {error}", code="missing-package"
        ) from error

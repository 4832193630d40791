"""Gymnasium's registry: ids and the packages that register them."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from typing import Any

from fedlsvi.errors import InvalidEnvironment, UnknownName

HOMES = {"Sepsis": "icu_sepsis", "mobile": "mobile_env"}
"""Packages whose ids are known: namespace or first word of the id → module that registers it."""


def find_spec(id: str) -> Any:
    """The spec of a Gymnasium id, whose package is imported where it is known."""
    gym = package()
    module, _, name = id.rpartition(":")
    word = name.replace("/", "-").split("-")[0]
    try:
        if module:
            importlib.import_module(module)
        elif word in HOMES and name not in gym.registry:
            # ICU-Sepsis imports the old gym, which warns and prints an advertisement
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(HOMES[word])
        elif word == "fedlsvi" and name not in gym.registry:
            from fedlsvi.plugin import register_all

            register_all()
    except ImportError as error:
        missing = (module or HOMES.get(word, word)).split(".")[0].replace("_", "-")
        raise InvalidEnvironment(
            f"env '{id}' needs a package that cannot be imported ({error}): pip install {missing}"
        ) from None
    if name not in gym.registry:
        spaces = {known.split("/")[0] for known in gym.registry if "/" in known}
        if "/" in name and name.split("/")[0] not in spaces:
            raise InvalidEnvironment(
                f"unknown environment '{id}': no package has registered the namespace "
                f"'{name.split('/')[0]}'. Import the package that does, or write "
                f"'package:{name}' with its module"
            )
        raise UnknownName("environment", id, gym.registry)
    return gym.spec(name)


def looks_like_id(name: str) -> bool:
    """Whether a name is a Gymnasium id (it ends in -v and a number) and none of this package's."""
    stem, dash, version = name.rpartition("-v")
    return bool(stem and dash) and version.isdigit()


def package() -> Any:
    """Gymnasium itself."""
    try:
        return importlib.import_module("gymnasium")
    except ImportError:
        raise InvalidEnvironment(
            "a Gymnasium environment needs Gymnasium: pip install 'fedlsvi[gym]'"
        ) from None


def known_ids() -> list[str]:
    """Every id that is registered now; none where Gymnasium is not installed."""
    try:
        return list(package().registry)
    except InvalidEnvironment:
        return []

"""A study: what sites agree on before each of them sends one file.

    name = "ward"                    study.toml, the same file at every site
    horizon = 24
    episodes = 5000                  # of each site's records at most
    actions = ["none", "low", "high"]
    reward_range = [0.0, 1.0]
    [bins]                           # or n_states = …
    lactate = [2.0, 4.0]
    sofa = [5, 10]
    # or [recipe], by which tables of a clinic become episodes: see `logs.recipe`
    [features]                       # left out: one-hot
    name = "one-hot"
    [settings]                       # of pevi
    aggregation = "secure"
    privacy = {epsilon = 1.0, delta = 1e-6, unit = "user", episodes_per_user = 2}
    [sites]                          # and the public key of each
    north = "2f1c 8e0a …"

The study is a federation with `algorithm = "pevi"` whose only exchange goes by mail, so the numbers
in force, the bounds of the guard and the model are those of a job with the same settings. Its
digest covers all of it and is its name in every file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedlsvi.checks import integer, plural, refuse_large, refuse_unknown
from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.experience.values import TabularValues
from fedlsvi.features.base import resolve
from fedlsvi.incompatible import refuse
from fedlsvi.logs.bins import Bins
from fedlsvi.logs.recipe import Recipe
from fedlsvi.protocol.messages import Layout
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.federation import LETTERS, NAME, Federation
from fedlsvi.storage import files, settings_file
from fedlsvi.storage.schema import Shape, misfit

_SHAPES: dict[str, Shape] = {
    "name": str, "horizon": int, "episodes": int, "sites": {str: str}, "actions": (int, [str]),
    "n_states": int, "bins": {str: [float]}, "recipe": dict, "dim": int, "reward_range": [float],
    "features": {"name": str, str: Any}, "settings": dict, "seed": int,
}  # fmt: skip

KEY = re.compile(r"[0-9a-f]{64}")
"""A public key of Ed25519, without its spaces."""

SHORT = 24
"""Digits of the digest behind a study's name: two studies with the same are not to be found."""

_QUESTION = ("quantiles", "cells", "edges", "names")
"""What a recipe says of a variable without deciding which stays and rows count."""


def grouped(key: str) -> str:
    """A key in groups that people can read to each other."""
    return " ".join(key[i : i + 4] for i in range(0, len(key), 4))


@dataclass(frozen=True)
class Study:
    """The agreed question.

    Attributes:
        name: A name for people.
        horizon: H, steps of an episode.
        episodes: So many episodes of each site's records count at most.
        sites: Name → public key of each site, which signs its file.
        actions: How many there are, or their names in the order of their numbers.
        n_states: How many states there are, where records number them; 0 elsewhere.
        bins: Column → edges of its bins, where states are made of numbers; see `logs.bins`.
        recipe: How tables of a clinic become episodes; see `logs.recipe`.
        dim: d of features of vectors, which only sites have; 0 where states are finite.
        reward_range: The rewards that 0 and 1 stand for.
        features: Name and parameters of the features.
        settings: Of `pevi`, without exchange.
        seed: A number that tells two studies apart that are alike in everything else.
    """

    name: str
    horizon: int
    episodes: int
    sites: dict[str, str]
    actions: int | list[str]
    n_states: int = 0
    bins: dict[str, list[float]] | None = None
    recipe: dict[str, Any] | None = None
    dim: int = 0
    reward_range: list[float] = field(default_factory=lambda: [0.0, 1.0])
    features: dict[str, Any] = field(default_factory=lambda: {"name": "one-hot"})
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Study:
        """From a table, checked."""
        refuse_unknown("key of a study", table, [own.name for own in fields(cls)])
        for name in ("name", "horizon", "episodes", "sites", "actions"):
            if name not in table:
                raise InvalidInput(f"the study has no {name}: add {name} = …", code="missing-key")
        for name, value in table.items():
            if wrong := misfit(value, _SHAPES[name], name):
                raise InvalidSetting(f"{wrong}, which no study has", code=f"bad-{name}")
        study = cls(**table)
        study.check()
        return study

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """From study.toml."""
        return cls.of(settings_file.read(path))

    def check(self) -> None:
        """Refuse in a sentence what nobody could contribute to."""
        self._check_sites()
        integer("n_states", self.n_states, 0, "the number of states, where records number them")
        integer("dim", self.dim, 0, "the dimension of features of vectors")
        if isinstance(self.actions, int):
            integer("actions", self.actions, 1, "how many actions there are, or their names")
        given = (self.bins is not None, self.recipe is not None, self.n_states > 0, self.dim > 0)
        if sum(given) != 1:
            raise InvalidSetting(
                "a study needs one of n_states, bins, recipe and dim: the number of states in the "
                "records, edges of bins that make states of numbers, how tables become episodes, "
                "or the dimension of features of vectors",
                code="bad-states",
            )
        if self.bins is not None:
            Bins(self.bins)
        for key, own in sizes_of(self.agreed).items() if self.agreed is not None else ():
            if getattr(self, key) != own:
                raise InvalidSetting(
                    f"{key} is {getattr(self, key)!r}, but the recipe makes it {own!r}",
                    code="other-recipe",
                )
        S, H = max(1, self.states), self.horizon
        what = f"{plural(S, 'state')}, {plural(self.n_actions, 'action')} and {plural(H, 'step')}"
        size = H * S * self.n_actions + self.dim**2 // 2
        refuse_large(f"a study of {what}", size, "choose fewer")
        if "exchange" in self.settings:
            raise InvalidSetting(
                "exchange does not belong in [settings] of a study: all goes in one trip, by mail",
                code="bad-exchange",
            )
        if self.settings.get("own_features"):
            raise InvalidSetting(
                "own_features does not belong in [settings] of a study: a site has its own "
                "coefficients when it knows the shared ones, which no file brings back",
                code="bad-own_features",
            )
        refuse(
            SimpleNamespace(by_mail=self.horizon > 1),
            state_space="finite" if self.states else "continuous",
        )
        self.federation.check(len(self.sites))
        if self.open and self.privacy is not None:
            self._check_unit(self.privacy, len(self.agreed.open if self.agreed else ()))

    def _check_unit(self, privacy: dict[str, Any], variables: int) -> None:
        """In histograms a stay is an episode for each variable."""
        if variables > privacy["episodes_per_user"]:
            raise InvalidSetting(
                f"a stay counts {variables} times in the histograms of this recipe, and privacy is "
                f"for {plural(privacy['episodes_per_user'], 'episode')}: give privacy unit = "
                f'"user" and episodes_per_user = {variables} times the stays of a patient',
                code="bad-episodes_per_user",
            )

    def _check_sites(self) -> None:
        table = self.sites
        if not table:
            raise InvalidSetting(
                "the study has no sites: write [sites] with what `fedlsvi study key` prints at "
                "each site",
                code="bad-sites",
            )
        for name, key in table.items():
            if not NAME.fullmatch(name):
                raise InvalidSetting(f"a site's name must be {LETTERS}, got {name!r}",
                                     code="bad-site")  # fmt: skip
            if not KEY.fullmatch(key.replace(" ", "")):
                raise InvalidSetting(
                    f"sites.{name} is {key!r}, not a public key of 64 digits: give what `fedlsvi "
                    "study key` printed there",
                    code="bad-key",
                )
        if len(set(self.keys.values())) < len(table):
            raise InvalidSetting("two sites have the same key: each makes its own with "
                                 "`fedlsvi study key`", code="site-twice")  # fmt: skip

    @property
    def names(self) -> list[str]:
        """The sites in the order of their agents."""
        return sorted(self.sites)

    @property
    def keys(self) -> dict[str, str]:
        """Name → public key as 64 digits."""
        return {name: key.replace(" ", "") for name, key in self.sites.items()}

    @property
    def cuts(self) -> list[tuple[int, int]]:
        """(first agent, agents) of each site: one each."""
        return [(m, 1) for m in range(len(self.sites))]

    @cached_property
    def agreed(self) -> Recipe | None:
        """The recipe; None where records are episodes already."""
        return None if self.recipe is None else Recipe.of(self.recipe)

    @property
    def open(self) -> bool:
        """Whether the study asks for the bins of its recipe, and not yet for a policy."""
        return self.agreed is not None and bool(self.agreed.open)

    @property
    def cut(self) -> Bins | None:
        """The bins that make states; None where records number them."""
        if self.agreed is not None:
            return None if self.open else self.agreed.bins
        return None if self.bins is None else Bins(self.bins)

    @property
    def states(self) -> int:
        """S, or 0 where states are vectors."""
        if self.agreed is not None:
            return self.agreed.n_states
        return self.n_states if self.bins is None else Bins(self.bins).n_states

    @property
    def n_actions(self) -> int:
        """A."""
        return self.actions if isinstance(self.actions, int) else len(self.actions)

    @cached_property
    def federation(self) -> Federation:
        """The job that this study is."""
        one_hot, dim = False, self.dim
        if self.states:
            phi = Federation("-", 1, 1, 1, features=self.features).feature_map()
            stub = SimpleNamespace(name=self.name, n_states=self.states, n_actions=self.n_actions,
                                   horizon=self.horizon)  # fmt: skip
            bound = resolve(phi, stub)
            one_hot, dim = bound.one_hot, bound.dim
        exchange = "one-trip" if self.states else "stepwise"  # of a single step
        return Federation(
            self.name, self.episodes, self.horizon, dim, self.seed, one_hot,
            reward_range=list(self.reward_range), features=dict(self.features),
            settings={**self.settings, "exchange": exchange}, algorithm="pevi",
            n_states=self.states, n_actions=self.n_actions,
            action_names=None if isinstance(self.actions, int) else list(self.actions),
        )  # fmt: skip

    def values(self) -> TabularValues | None:
        """What the server of this study computes values with; None where states are vectors."""
        mask = None if self.agreed is None or self.open else self.agreed.mask
        return self.federation.values(self.parameters, mask)

    @cached_property
    def parameters(self) -> Parameters:
        """The numbers in force."""
        return self.federation.parameters(len(self.sites))

    @property
    def layout(self) -> Layout:
        """The sizes of messages."""
        return layout(self.parameters)

    @property
    def counted(self) -> dict[str, int]:
        """What decides which records are in its sums (`remote.account`)."""
        found = {"horizon": self.horizon, "min_round": self.parameters.min_round}
        found["episodes"] = self.episodes
        if self.recipe is not None:
            found["recipe"] = int(_hash(_without(self.recipe, _QUESTION))[:12], 16)
        # a histogram counts a stay once for each variable
        return {f"histogram {key}": n for key, n in found.items()} if self.open else found

    @property
    def privacy(self) -> dict[str, Any] | None:
        """What a private study may spend of each site's data; None without privacy."""
        return self.federation.budget(len(self.sites))

    @property
    def secure(self) -> bool:
        """Whether a round of key files goes first."""
        return self.parameters.aggregation == "secure"

    @property
    def hidden(self) -> bool:
        """Whether masks or noise hide what a site sends."""
        return self.secure or self.parameters.privacy is not None

    def table(self) -> dict[str, Any]:
        """What `of` reads back; every key is in it, and keys of sites are without spaces."""
        table = asdict(self) | {"sites": self.keys}
        return {key: value for key, value in table.items() if value is not None}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the table, and of the order of its columns, in which states are counted."""
        return _hash([self.table(), list(self.bins or ())])

    @property
    def called(self) -> str:
        """Its name in files and folders: what people call it, and the start of the digest."""
        return f"{self.name}-{self.digest[:SHORT]}"

    @property
    def run(self) -> int:
        """The number that its messages carry."""
        return int(self.digest[:16], 16)

    def write(self, path: str | Path) -> None:
        """Write study.toml."""
        table = {**self.table(), "sites": {name: grouped(k) for name, k in self.keys.items()}}
        head = f"# Every site needs this very file. Digest: {grouped(self.digest)}\n"
        files.write(Path(path), (head + settings_file.dump(table)).encode())


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without(table: Any, keys: Sequence[str]) -> Any:
    """A table without these keys, and the tables in it too."""
    if isinstance(table, dict):
        rest = {key: own for key, own in table.items() if key not in keys}
        return {key: _without(own, keys) for key, own in rest.items()}
    return [_without(own, keys) for own in table] if isinstance(table, list) else table


def sizes_of(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says of a study: of an open one, a single step without a choice."""
    if recipe.open:
        return {"horizon": 1, "actions": 1}
    return {"horizon": recipe.steps, "actions": recipe.action_names}


def difference(here: Any, there: Any, at: str = "") -> str | None:
    """Where two studies first differ, and how; None where they do not."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted({*here, *there}):
            where = f"{at}.{key}" if at else str(key)
            if key not in here or key not in there:
                return f"{where} is missing {'here' if key not in here else 'there'}"
            if (found := difference(here[key], there[key], where)) is not None:
                return found
        return None
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for i, pair in enumerate(zip(here, there, strict=True)):
            if (found := difference(*pair, f"{at}[{i}]")) is not None:
                return found
        return None
    return None if here == there else f"{at} is {there!r} there and {here!r} here"

"""What a site demands of a job before its agents take part (`[require]` in local/fedlsvi.toml).

The organiser writes the settings of a federation; each site decides for itself which of their
protections it will not do without. A job that lacks one is refused before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from fedlsvi.checks import choice, integer, is_integer, is_number, number, plural, refuse_unknown
from fedlsvi.config import FEWEST_SITES
from fedlsvi.core.privacy_settings import UNITS
from fedlsvi.errors import InvalidSetting
from fedlsvi.groups import Aggregation

_HIDES = {"float": 0, "exact": 0, "secure": 1}
"""How much each kind of sum hides from the server."""


@dataclass(frozen=True)
class Requirements:
    """The least that a site asks for.

    Attributes:
        min_round: No round, and so no upload, may cover fewer episodes.
        aggregation: "secure": the server may learn sums over sites only.
        epsilon, delta: The run may spend at most this; None asks for no differential privacy.
        total_epsilon: All runs of this site's data together may spend at most this, at `delta`
            (`remote.account`); None sets no limit.
        unit: Who is protected: "episode", or "user".
        episodes_per_user: Users with so many episodes must be protected.
        colluders: So many other sites may work with the server without weakening the noise.
        sites: Secure sums may not be over fewer sites.
        schedule: "public": rounds may not end when the data say so.
        other_sites: Allows secure sums of the same data with several sets of sites, from which
            together follows what is in one of them only (`remote.account`).
        other_episodes: Allows several jobs without noise over the same data that count more or
            fewer episodes of them, from which together follows what is in one of them only.
    """

    min_round: int = 1
    aggregation: Aggregation = "float"
    epsilon: float | None = None
    delta: float | None = None
    total_epsilon: float | None = None
    unit: str = "episode"
    episodes_per_user: int = 1
    colluders: int = 0
    sites: int = FEWEST_SITES
    schedule: Literal["any", "public"] = "any"
    other_sites: bool = False
    other_episodes: bool = False

    @classmethod
    def of(cls, table: Any) -> Requirements:
        """From a table of a site's settings; unknown keys are refused."""
        if not isinstance(table, dict):
            raise InvalidSetting(
                f"require must be a table, got {table!r}: write [require]", code="bad-require"
            )
        refuse_unknown("key of [require]", table, [own.name for own in fields(cls)])
        made = cls(**table)
        integer("min_round", made.min_round, 1, "the fewest episodes of a round")
        choice("aggregation", made.aggregation, get_args(Aggregation))
        choice("unit", made.unit, UNITS)
        integer("episodes_per_user", made.episodes_per_user, 1, "the most episodes of a user")
        integer("colluders", made.colluders, 0, "sites that may work with the server")
        integer("sites", made.sites, FEWEST_SITES, "the fewest sites in a secure sum")
        choice("schedule", made.schedule, ("any", "public"))
        for name in ("other_sites", "other_episodes"):
            if not isinstance(flag := getattr(made, name), bool):
                raise InvalidSetting(
                    f"{name} must be true or false, got {flag!r}", code=f"bad-{name}"
                )
        for name in ("epsilon", "delta", "total_epsilon"):
            if getattr(made, name) is not None:
                number(name, getattr(made, name), 0.0, "the most that may be spent", strict=True)
        if made.total_epsilon is not None and made.delta is None:
            raise InvalidSetting(
                "[require] has total_epsilon but no delta, and ε alone says nothing: give delta",
                code="bad-delta",
            )
        return made

    @property
    def limit(self) -> dict[str, Any]:
        """What `remote.account` refuses to exceed; empty without a limit."""
        if self.total_epsilon is None:
            return {}
        return {"total": self.total_epsilon, "delta": self.delta, "episodes": self.protected}

    @property
    def protected(self) -> int:
        """Episodes of whoever is protected, at most."""
        return self.episodes_per_user if self.unit == "user" else 1

    def missing(
        self, settings: Mapping[str, Any], public: bool = False, sites: int | None = None,
        floor: int | None = None,
    ) -> str:  # fmt: skip
        """What the settings of a job lack, in a sentence; "" if nothing.

        Args:
            settings: Of the job.
            public: Whether its rounds end on a public schedule.
            sites: How many take part; None is not known yet.
            floor: The fewest episodes of its rounds; None is the setting.
        """
        sums = settings.get("aggregation", "float")
        floor = settings.get("min_round", 1) if floor is None else floor
        lacks = []
        if not isinstance(floor, int) or floor < self.min_round:
            lacks.append(f"min_round = {self.min_round} (the job has {floor})")
        if _HIDES.get(str(sums), -1) < _HIDES[self.aggregation]:
            lacks.append(f'aggregation = "{self.aggregation}" (the job has "{sums}")')
        if self.schedule == "public" and not public:
            lacks.append(
                "rounds that end on a public schedule, as they do with secure sums or privacy if "
                "gamma, cap and overshoot are left out"
            )
        if sums == "secure" and sites is not None and sites < self.sites:
            lacks.append(f"sums over at least {plural(self.sites, 'site')} (the job has {sites})")
        lacks += self._unspent(settings.get("privacy"))
        if not lacks:
            return ""
        return (
            f"this site requires {' and '.join(lacks)}: ask the organiser to add it to [settings] "
            "of federation.toml, or change [require] in local/fedlsvi.toml"
        )

    def _unspent(self, privacy: Any) -> list[str]:
        """What `privacy` of a job lacks."""
        job = privacy if isinstance(privacy, Mapping) else {}
        lacks = []
        for name in ("epsilon", "delta"):
            most, has = getattr(self, name), job.get(name)
            if most is not None and not (is_number(has) and has <= most):
                lacks.append(f"privacy with {name} of at most {most:g} (the job has {has})")
        if self.total_epsilon is not None and not job:
            lacks.append("privacy with an epsilon, because total_epsilon is limited")
        if self.unit == "user" and job.get("unit", "episode") != "user":
            lacks.append('privacy with unit = "user"')
        for name, least, usual in (
            ("episodes_per_user", self.episodes_per_user, 1), ("colluders", self.colluders, 0)
        ):  # fmt: skip
            has = job.get(name, 1) if job else 0  # a private job has one of each if it says nothing
            if least > usual and not (is_integer(has) and has >= least):
                lacks.append(f"privacy with {name} of at least {least} (the job has {has})")
        return lacks

"""What a site demands of a job before its agents take part (`[require]` in local/fedlsvi.toml).

The organiser writes the settings of a federation; each site decides for itself which of their
protections it will not do without. A job that lacks one is refused before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from fedlsvi.checks import choice, integer, is_number, number, refuse_unknown
from fedlsvi.config import Aggregation
from fedlsvi.core.privacy_settings import UNITS
from fedlsvi.errors import InvalidSetting

_HIDES = {"float": 0, "exact": 0, "secure": 1}
"""How much each kind of sum hides from the server."""


@dataclass(frozen=True)
class Requirements:
    """The least that a site asks for.

    Attributes:
        min_round: No round, and so no upload, may cover fewer episodes.
        aggregation: "secure": the server may learn sums over sites only.
        epsilon, delta: The run may spend at most this; None asks for no differential privacy.
        unit: Who is protected: "episode", or "user".
    """

    min_round: int = 1
    aggregation: Aggregation = "float"
    epsilon: float | None = None
    delta: float | None = None
    unit: str = "episode"

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
        for name in ("epsilon", "delta"):
            if getattr(made, name) is not None:
                number(name, getattr(made, name), 0.0, "the most that a run may spend", strict=True)
        return made

    def missing(self, settings: Mapping[str, Any]) -> str:
        """What the settings of a job lack, in a sentence; "" if nothing."""
        floor, sums = settings.get("min_round", 1), settings.get("aggregation", "float")
        lacks = []
        if not isinstance(floor, int) or floor < self.min_round:
            lacks.append(f"min_round = {self.min_round} (the job has {floor})")
        if _HIDES.get(str(sums), -1) < _HIDES[self.aggregation]:
            lacks.append(f'aggregation = "{self.aggregation}" (the job has "{sums}")')
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
        if self.unit == "user" and job.get("unit", "episode") != "user":
            lacks.append('privacy with unit = "user"')
        return lacks

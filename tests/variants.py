"""The settings that change when a round ends, and the same rule for the literal reference."""

from __future__ import annotations

import math
from typing import Any

from fedlsvi.core.trigger import schedule
from problems import Setting

VARIANTS: list[dict[str, Any]] = [
    {"cap": 1.1},
    {"cap": "agents"},
    {"min_round": 4},
    {"rounds": 5},
    {"rounds": 6, "min_round": 3, "cap": 1.5},
    {"scalars": 8},
    {"scalars": 12, "rounds": 7, "min_round": 2},
    {"gamma": "anytime"},
    {"gamma": "anytime", "cap": "agents"},
]
"""Here scalars stands for the rounds that it pays for; `paid` makes it a number of scalars."""

MIXED: list[dict[str, Any]] = [
    {"scalars": 7, "min_round": 3, "cap": 1.2},
    {"gamma": "anytime", "cap": "agents", "taper": True},
    {"rounds": 6, "min_round": 4},
]
"""Every one of these settings at least once, and a β that shrinks, where a run is slow to start."""


def scalars_of(M: int, H: int, size: int, K: int, noisy: bool = False) -> int:
    """M(H(P+d)+3) + K(2MH(P+d)+M+2M): what K rounds send at most, with P + d = size; MH + 3KMH
    more where the bonus knows the noise."""
    told = M * H * (1 + 3 * K) if noisy else 0
    return M * (H * size + 3) + K * (2 * M * H * size + 3 * M) + told


def paid(own: dict[str, Any], M: int, H: int, size: int, noisy: bool = False) -> dict[str, Any]:
    """The settings as a learner takes them; a budget that leaves a remainder."""
    if "scalars" not in own:
        return own
    most = scalars_of(M, H, size, own["scalars"], noisy)
    return own | {"scalars": most + 5, "policy": "explore"}


def most_rounds(own: dict[str, Any], T: int) -> int:
    """The budget of the settings, in rounds."""
    return min(own.get("rounds", T), own.get("scalars", T))


def literal_options(s: Setting, d: int, own: dict[str, Any]) -> dict[str, Any]:
    """The same rule for the reference, worked out here."""
    cap, first = own.get("cap", math.inf), own.get("min_round", 1)
    limited = "rounds" in own or "scalars" in own
    return {
        "cap": 1.0 + 1.0 / s.M if cap == "agents" else cap,
        "min_round": first,
        "points": schedule(s.T, most_rounds(own, s.T), first).tolist() if limited else (),
        "growth": 8.0 / (s.M * d) if own.get("gamma") == "anytime" else 0.0,
    }


def assert_kept(run: Any, own: dict[str, Any]) -> None:
    """No more rounds, and no shorter ones, than the settings allow; so of every upload."""
    T = run.parameters.episodes
    assert run.rounds <= most_rounds(own, T)
    assert min(record.length for record in run.records) >= own.get("min_round", 1)
    assert min(record.smallest for record in run.records) >= own.get("min_round", 1)

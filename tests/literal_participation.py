"""Who takes part in a round and what that sends, worked out apart from the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedlsvi.core.statistics import packed_size
from literal import uniform


def there(own: dict[str, Any], M: int, seed: int) -> Callable[[int, int], list[int]]:
    """Who plays round k after episode t, worked out here."""

    def who(k: int, t: int) -> list[int]:
        listed = {m for m, _, _ in own.get("present") or ()}
        stays = own.get("present") or ()
        could = [
            m for m in range(M)
            if m not in listed or any(a == m and lo <= t + 1 <= hi for a, lo, hi in stays)
        ]  # fmt: skip
        if (asked := own.get("participation", 1.0)) > 1:  # Floyd's algorithm
            chosen: set[int] = set()
            n = min(asked, len(could))
            for j, top in enumerate(range(len(could) - n, len(could))):
                at = int(uniform(seed, 0, k, j, 32) * (top + 1))
                chosen.add(top if at in chosen else at)
            return [could[i] for i in sorted(chosen)]
        draws = {m: uniform(seed, m, k, 0, 32) for m in could}
        came = [m for m in could if draws[m] < own.get("participation", 1.0)]
        return came or [min(could, key=lambda m: draws[m])]

    return who


def assert_ledger_counts_who_was_there(run: Any, who: Callable[[int, int], list[int]]) -> None:
    """Arrivals get the model; who is there gets a Stop and both ways of H statistics."""
    p, arrivals, present, before = run.parameters, 0, 0, set[int]()
    for record in run.records:
        now = set(who(record.k, record.first - 1))
        assert record.present == len(now)
        arrivals, present, before = arrivals + len(now - before), present + len(now), now
    half = p.matrices * packed_size(p.dim, p.packing) + p.horizon * p.dim
    signals = sum(record.signals for record in run.records)
    expected = {"init": arrivals * (half + 3), "signal": present + 2 * signals,
                "up_stats": present * half, "down_model": present * half}  # fmt: skip
    assert {k: n for k, n in run.ledger.scalars.items() if n} == expected
    assert run.scalars_raw == run.agent_episodes * p.horizon * run.raw_scalars_per_step

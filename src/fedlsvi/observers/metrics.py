"""A record as named numbers, the same names in every tracker."""

from __future__ import annotations

from fedlsvi.protocol.records import RoundRecord


def metrics(record: RoundRecord) -> dict[str, float]:
    """The numbers of a record that a curve can be drawn of; unknown ones are left out.

    Args:
        record: Of a round. Trackers plot against `record.last`, the episodes per agent so far.

    Returns:
        Values by name, such as "regret", "scalars/total" and "seconds/explore".
    """
    found: dict[str, float | None] = {
        "round": record.k,
        "round_length": record.length,
        "signals": record.signals,
        "regret": record.regret,
        "mean_return": record.mean_return,
        "overshoot": record.overshoot,
        "scalars/total": sum(record.scalars.values()),
        "logdet/mean": sum(record.logdet) / max(len(record.logdet), 1),
    }
    found |= {f"scalars/{category}": count for category, count in record.scalars.items()}
    found |= {f"seconds/{phase}": spent for phase, spent in record.seconds.items()}
    return {name: float(value) for name, value in found.items() if value is not None}

"""What was out of the ordinary in a run, kept for the record of the round that it is true of."""

from __future__ import annotations

from collections.abc import Iterable

NO_ROUND = 0


class Notes:
    """Texts by round. Who is lost with a round's last model, or between two rounds, is missing in
    the next one: its note is of a round that has no record yet."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, str]] = []

    def add(self, text: str, k: int = NO_ROUND) -> None:
        """Something was out of the ordinary in round k, or in none."""
        self._kept.append((k, text))

    def due(self, k: int, last: bool) -> list[str]:
        """What belongs into the record of round k; all there is if no other record follows."""
        due = [note for note in self._kept if last or note[0] <= k]
        self._kept = [] if last else [note for note in self._kept if note[0] > k]
        return [_line(min(of, k), text) for of, text in due]

    def state(self) -> list[list[int | str]]:
        """What is not told yet, in plain values."""
        return [list(note) for note in self._kept]

    def restore(self, kept: Iterable[tuple[int, str]]) -> None:
        """Go on from `state`; what has been noted since stays."""
        self._kept = [(of, text) for of, text in kept] + self._kept


def _line(k: int, text: str) -> str:
    return text if k == NO_ROUND else f"round {k}: {text}"

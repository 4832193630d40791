"""Taxi: the exact value of what eight agents learn, in the environment's own units.

`python -m examples.taxi.run`
"""

from __future__ import annotations

from pathlib import Path

from examples.play import Line, command, together_and_alone


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Values are mean returns over the 300 first states."""
    return together_and_alone(Path(__file__).parent, seeds, changes)


if __name__ == "__main__":
    command(main)

"""FrozenLake 8×8: the exact value of what eight agents learn, and of what one learns alone.

`python -m examples.frozen_lake_8x8.run`
"""

from __future__ import annotations

from pathlib import Path

from examples.play import Line, command, together_and_alone


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Values are probabilities of reaching the goal within 100 steps."""
    return together_and_alone(Path(__file__).parent, seeds, changes)


if __name__ == "__main__":
    command(main)

"""CliffWalking: the exact value of what eight agents learn, in the environment's own units.

`python -m examples.cliff_walking.run`
"""

from __future__ import annotations

from pathlib import Path

from examples.play import Line, command, together_and_alone


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Values are returns of 20 steps."""
    return together_and_alone(Path(__file__).parent, seeds, changes)


if __name__ == "__main__":
    command(main)

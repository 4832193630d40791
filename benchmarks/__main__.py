"""`python -m benchmarks [name …]`: run benchmarks one after the other, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

from fedlsvi.experiments.measure import table

NAMES = (
    "finite",
    "every_episode",
    "many_agents",
    "continuous",
    "memory",
    "plan",
    "logs",
    "estimate_coverage",
    "ray_gym",
    "ray_overhead",
    "ray_sweeps",
    "signing",
    "sizes",
    "secure_sums",
    "one_trip",
    "overshoot",
    "comparators",
    "bandits",
    "gym_stepping",
    "gym_learning",
    "allowed_actions",
    "walk",
    "watching",
)
LONG = ("endurance",)
"""Run only if named: it takes an hour."""


def main(arguments: list[str]) -> int:
    """With one name: run it here. With none or several: one process each, so memory is its own."""
    names = (*NAMES, *LONG)
    unknown = [name for name in arguments if name not in names]
    if unknown:
        print(f"unknown benchmark '{unknown[0]}': choose from {', '.join(names)}", file=sys.stderr)
        return 2
    if len(arguments) == 1:
        module = import_module(f"benchmarks.{arguments[0]}")
        print(
            f"\n{arguments[0]}: {module.__doc__.splitlines()[0]}\n{table(module.main())}",
            flush=True,
        )
        return 0
    for name in arguments or NAMES:
        subprocess.run([sys.executable, "-m", "benchmarks", name], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

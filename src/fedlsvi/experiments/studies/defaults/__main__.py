"""`python -m fedlsvi.experiments.studies.defaults [instances]`: sweep, choose, report.

Prints the chosen pair and the table of docs/defaults.md. Two instances of each family take a few
minutes on two cores.
"""

from __future__ import annotations

import sys

from fedlsvi.experiments.studies.defaults.analysis import markdown, ranking
from fedlsvi.experiments.studies.defaults.sweep import LAMBDAS, SCALES, sweep


def main(instances: int = 2) -> None:
    """Tune on every pair of the grid; test the best eight, the least and the largest β beside the
    best λ, and λ = 1 with two β and the theorem's."""
    grid = [(1.0, 0.0), *((lam, scale) for lam in LAMBDAS for scale in SCALES)]
    tune = list(sweep("tune", instances, grid))
    order = [pair for _, pair in ranking(tune)]
    extremes = [(order[0][0], scale) for scale in (min(SCALES), max(SCALES))]
    paper = [(1.0, 0.1), (1.0, 0.4), (1.0, 0.0)]
    shown = list(dict.fromkeys([*order[:8], *extremes, *paper]))
    test = list(sweep("test", instances, shown))
    print(f"chosen on the tuning instances: lam = {order[0][0]:g}, beta = {order[0][1]:g}·H\n")
    print(markdown(tune, test, shown))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:2]))

"""What a reader tries first learns with any seed: it ends far above chance, near the optimum."""

from __future__ import annotations

import re
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP
from fedlsvi.features import AggregateFeatures
from repeats import repeats

ROOT = Path(__file__).parents[2]

FIRST = {
    "README.md": (0, "30_000", 3.042),
    "README.md, FrozenLake": (1, "5_000", 0.546),
    "docs/tutorial.md": (0, "5_000", 3.397),
    "docs/howto-environments.md": (0, "2_000", 0.546),
    "docs/howto-environments.md, CartPole": (3, "30", 50.0),
    "docs/howto-features.md": (0, "1_000", 1.110),
    "docs/howto-features.md, CartPole": (1, "30", 50.0),
}
"""Page → which of its blocks, the episodes that it plays, and what an optimal episode is worth."""


@pytest.mark.filterwarnings("ignore::fedlsvi.errors.FedLSVIWarning")
@pytest.mark.parametrize("where", FIRST)
def test_it_learns_with_any_seed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number, episodes, best = FIRST[where]
    page = (ROOT / where.split(",")[0]).read_text(encoding="utf-8")
    *before, block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[: number + 1]
    assert f"episodes={episodes}" in block
    learn, made = FedLSVI.learn, []
    seeds = (3, 4)[: repeats(1, 2)]

    def seeded(self: Any, chosen: int, *given: Any, **options: Any) -> Any:
        run = learn(self, *given, **options | {"seed": chosen, "progress": False})
        made.append(run)
        return run

    names: dict[str, Any] = {"__name__": "page"}
    for line in "\n".join(before).splitlines():
        if re.match(r"from \S+ import|import ", line):
            exec(line, names)
    names["print"] = lambda *_: None
    block = block.replace("for seed in range(3)", "for seed in range(1)")
    for seed in seeds:
        monkeypatch.setattr(FedLSVI, "learn", partialmethod(seeded, seed))
        exec(compile(block, where, "exec", dont_inherit=True), names)
    for run in made:
        known = run.references()
        chance = known.get("uniform", known.get("random"))
        assert known.get("optimal", best) == pytest.approx(best, abs=2e-3)
        assert known["learned"] > chance + 0.9 * (best - chance), known


def test_the_tutorial_says_the_dimension_that_its_features_have() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"d = 4·5 = (\d+)", page)
    (line,) = re.findall(r"^groups = (.+)$", page, re.MULTILINE)
    measured = np.random.default_rng(0).normal(size=(716, 3))
    groups = eval(line, {"AggregateFeatures": AggregateFeatures, "bedside": measured})
    P = np.zeros((716, 5, 716))
    P[:, :, 0] = 1.0
    env = FiniteMDP(P, np.zeros((716, 5)), horizon=2)
    assert groups.bind(env).dim == int(said)

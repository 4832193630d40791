"""Run folders hold any algorithm: written as it plays, read back, continued after a stop."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.roster import AGENTS, NAMES, assert_same, make, tabular
from fedlsvi.algorithms import registry
from fedlsvi.storage import load, resume


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_says_what_was_played(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = make(name).learn(tabular(), 60, 4, progress=False, folder=folder)
    found = load(folder)
    assert found.algorithm == name
    assert found.parameters == run.parameters
    assert found.regret is not None
    assert found.regret.tobytes() == run.regret.tobytes()
    assert found.ledger.scalars == run.ledger.scalars
    assert found.rounds == run.rounds
    formula = registry.entry(name).scalars  # also from what the folder holds
    assert formula is not None
    assert found.ledger.scalars == dict.fromkeys(found.ledger.scalars, 0) | formula(found)
    assert found.w.tobytes() == run.w.tobytes()
    assert found.settings == run.settings
    assert np.array_equal(found.policy.table, run.policy.table)
    run.save(str(tmp_path / "saved"))
    assert np.array_equal(load(tmp_path / "saved").policy.table, run.policy.table)


class Stop(Exception):
    """Somebody pulled the plug."""


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_run_is_continued_to_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = make(name).learn(tabular(), 60, 4, progress=False)

    def stop(record: Any) -> None:
        if record.last >= 20:
            raise Stop

    folder = tmp_path / "run"
    with suppress(Stop):
        make(name).learn(
            tabular(), 60, 4, progress=False, folder=folder, checkpoint_seconds=0.0,
            observers=[stop],
        )  # fmt: skip
    assert_same(resume(folder, progress=False), whole)
    assert load(folder).parameters.n_agents == AGENTS

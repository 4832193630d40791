"""The study of agents that are away: where regret is read, and that its table can be made."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from studies import participation


def test_regret_is_read_where_enough_was_played() -> None:
    env = RandomLinearMDP(n_states=5, n_actions=2, dim=3, horizon=2, seed=0)
    run = FedLSVI(4, participation=0.5).learn(env, 60, 0, progress=False)
    assert run.regret is not None
    each = [r.present or 0 for r in run.records for _ in range(r.length)]
    at = int(np.argmax(np.cumsum(each) >= 50))
    found = participation.reading(run, 50)
    assert found.regret == run.regret[at]
    (k,) = [r.k for r in run.records if r.first <= at + 1 <= r.last]
    assert found.rounds == k
    assert found.scalars == sum(run.records[k - 1].scalars.values())


def test_the_table_has_a_row_for_every_arm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(participation, "EPISODES", 20)
    monkeypatch.setattr(
        participation, "FAMILIES", {"random-linear": participation.FAMILIES["random-linear"]}
    )
    participation.main(1)
    rows = capsys.readouterr().out.splitlines()[2:]
    labels = [row.split(" | ")[1] for row in rows]
    assert labels == [
        "0.1 of 20", "2, always there", "0.25 of 20", "5, always there", "0.5 of 20",
        "10, always there", "20, always there",
    ]  # fmt: skip
    assert rows[-1].split(" | ")[2] == "1.00"

"""The study of defaults against a grid: its arms, its file, and its table."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fedlsvi import FedLSVI
from studies import environments, grid, noise, practical
from studies.grid import ARMS, DEFAULT, EARLIER, GRID, Result

pytestmark = pytest.mark.filterwarnings("ignore::fedlsvi.errors.TrafficWarning")


def test_its_instances_took_no_part_in_any_choice() -> None:
    used = {*noise.TUNE, *noise.TEST, *practical.TUNE, *practical.TEST}
    assert not used & set(grid.INSTANCES)
    assert len(grid.INSTANCES) >= 20
    assert len(GRID) == 7


def test_an_arm_is_a_plain_run() -> None:
    """The default is `FedLSVI()`; a constant is c times the value range, tapered."""
    env, M = practical.FAMILIES["garnet"](6001), practical.AGENTS[6001 % len(practical.AGENTS)]
    regrets = {}
    for arm, given in ((DEFAULT, {}), ("0.25·v", {"beta": 0.25 * env.horizon, "taper": True})):
        run = FedLSVI(M, **given).learn(env, 40, 6001, progress=False)
        assert run.regret is not None
        regrets[arm] = run.regret[-1], grid.play("garnet", 40, 6001, arm)
    whole = {arm: lost / result.regret for arm, (lost, result) in regrets.items()}
    assert whole[DEFAULT] == pytest.approx(whole["0.25·v"])  # the uniform policy's
    forty = grid.play("garnet", 400, 6001, EARLIER)
    assert forty.rounds <= 40 < grid.play("garnet", 400, 6001, DEFAULT).rounds


def made(arm: str, regret: float, instance: int = 0) -> Result:
    return Result("garnet", 300, instance, arm, regret, 0.0, 40, 1.0, 0.0)


def test_the_best_constant_is_that_of_the_mean() -> None:
    results = [made(arm, 1.0, i) for arm in ARMS for i in (0, 1)]
    better = f"{GRID[2]:g}·v"
    results = [replace(r, regret=0.5) if r.arm == better else r for r in results]
    (cell,) = grid.cells(results).values()
    assert grid.best(cell) == (better, 0.5)
    assert "| best | 2.00 |" in "\n".join(grid.tables(grid.cells(results)))
    (cell,) = grid.cells(results[:-1]).values()  # an arm lacks the second instance
    assert {len(runs) for runs in cell.values()} == {1}
    assert grid.cells(made(arm, 1.0) for arm in ARMS[1:]) == {}


def test_the_limits_are_judged_from_the_same_cells(tmp_path: Path) -> None:
    regrets = {EARLIER: 1.0, DEFAULT: 0.4}
    results = [made(arm, regrets.get(arm, 0.3)) for arm in ARMS]
    cells = grid.cells(results)
    assert "\n".join(grid.tables(cells)).count(": holds") == 3  # .4 is 1.33 times .3
    assert grid.beside_best(cells, 300, DEFAULT) == pytest.approx(4 / 3)
    worse = grid.cells(replace(r, regret=1.2) if r.arm == DEFAULT else r for r in results)
    said = "\n".join(grid.tables(worse))
    assert "does not hold, garnet (300)" in said
    assert said.count(": holds") == 1  # it does not stick
    table, figure = tmp_path / "grid.csv", tmp_path / "grid.png"
    grid.write(cells, str(table))
    grid.draw(cells, str(figure))
    assert len(table.read_text().splitlines()) == 1 + len(ARMS)
    assert figure.stat().st_size > 1000


def test_an_interrupted_study_has_all_arms_of_its_instances() -> None:
    jobs = grid.jobs()
    assert len(jobs) == len(set(jobs))
    played = jobs[: len(jobs) // 3 + 17]
    cells = grid.cells(Result(*job, 1.0, 0.0, 40, 1.0, 0.0) for job in played)
    assert sum(len(runs) for cell in cells.values() for runs in cell.values()) >= len(played) - 10


def test_files_may_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    whole, cut = (json.dumps(asdict(made(DEFAULT, 1.0, i))) for i in (0, 1))
    path.write_text(f"{whole}\n{cut[:30]}")
    assert [key[2] for key in grid.read(path)] == [0]
    path.write_text(f"{whole}\n{cut[:30]}\n{cut}\n")
    assert [key[2] for key in grid.read(path)] == [0, 1]
    run = json.dumps({"name": "Catch", "seed": 3})
    path.write_text(f"{run}\n{run[:9]}")
    assert list(environments.read(path)) == [("Catch", 3)]

"""TOML settings: written, read back, changed key by key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expecting import refused
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.storage.settings_file import Job, assign, dump, read

words = st.text(max_size=12)
scalars = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(words, values, max_size=6))
def test_what_is_dumped_is_read_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(dump(table)) == table


def test_numbers_of_numpy_are_numbers() -> None:
    table = {
        "a": np.float64(100.0),
        "b": np.float32(0.5),
        "c": [np.int64(3)],
        "d": np.float64("inf"),
    }
    assert tomllib.loads(dump(table)) == table


@pytest.mark.parametrize("text", ["[-1, 0]", "(-1, 0)", "-1, 0"])
def test_a_pair_may_be_written_as_in_toml_or_python(text: str) -> None:
    table: dict[str, Any] = {}
    assign(table, f"env.reward_range={text}")
    assert table == {"env": {"reward_range": [-1, 0]}}


def test_none_is_left_out() -> None:
    assert tomllib.loads(dump({"a": None, "b": {"c": None, "d": 1}})) == {"b": {"d": 1}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gamma=50", {"gamma": 50}),
        ("beta=theory", {"beta": "theory"}),
        ("env.horizon=7", {"env": {"name": "river-swim", "horizon": 7}}),
        ("env.initial=[0, 1]", {"env": {"name": "river-swim", "initial": [0, 1]}}),
        ("lam = 1e-2", {"lam": 0.01}),
        ('preset="paper"', {"preset": "paper"}),
    ],
)
def test_set(text: str, expected: dict[str, Any]) -> None:
    table: dict[str, Any] = {"env": "river-swim"}
    assign(table, text)
    assert table == {"env": "river-swim"} | expected


@pytest.mark.parametrize("text", ["gamma", "=3", "env.=3", "episodes.x=3"])
def test_set_refuses_what_is_no_assignment(text: str) -> None:
    with refused(InvalidInput, "bad-assignment", "--set", text):
        assign({"episodes": 3}, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused(InvalidInput, "bad-settings-file", "none.toml"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("gamma = = 3")
    with refused(InvalidInput, "bad-settings-file", "bad.toml", "line 1"):
        read(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with refused(InvalidInput, "bad-settings-file", "bytes.toml"):
        read(tmp_path / "bytes.toml")


def test_a_job_is_read_back() -> None:
    table = {
        "algorithm": "fed-lsvi", "episodes": 9, "seed": 2, "n_agents": 2, "gamma": 3.0,
        "env": {"name": "river-swim", "n_states": 5}, "features": {"name": "one-hot"},
    }  # fmt: skip
    job = Job.parse(table)
    assert Job.parse(tomllib.loads(dump(job.table()))) == job
    assert job.environments().n_states == 5  # type: ignore[union-attr]


def test_one_environment_per_agent() -> None:
    """An environment of one agent is made for each; agents that are alike share one."""
    job = Job.parse({"n_agents": 3, "env": {"name": "xi-close", "xi": 0.1}})
    assert [env.agent for env in job.environments()] == [0, 1, 2]  # type: ignore[union-attr]
    alike = Job.parse({"n_agents": 3, "env": "random-mdp"}).environments()
    assert not isinstance(alike, list)


def test_arrays_from_a_file(tmp_path: Path) -> None:
    P, r = np.full((2, 2, 2), 0.5), np.eye(2)
    np.savez(tmp_path / "mdp.npz", P=P, r=r, horizon=3)
    job = Job.parse({"env": {"name": "arrays", "file": "mdp.npz"}}, tmp_path)
    env: Any = job.environments()
    assert (env.horizon, env.n_states) == (3, 2)
    entry = {"name": "arrays", "file": "mdp.npz", "reward_range": [-1, 3], "first_action": 1}
    env = Job.parse({"env": entry}, tmp_path).environments()
    assert (env.original(1.0), env.first_action, env.first_observation) == (1.0, 1, 0)
    for key, value in {"reward_range": 5, "first_action": 0.5, "after_end": 1}.items():
        with refused(InvalidInput, f"bad-{key}", key):
            Job.parse({"env": entry | {key: value}}, tmp_path).environments()
    with refused(UnknownName, "unknown-parameter", "horizn", "horizon"):
        Job.parse({"env": {"name": "arrays", "horizn": 3}}).environments()
    with refused(InvalidInput, "missing-array", "P"):
        Job.parse({"env": {"name": "arrays", "r": [[1.0]]}}).environments()
    np.savez(tmp_path / "odd.npz", P=np.array([{}], dtype=object))
    with refused(InvalidInput, "bad-arrays-file", "odd.npz"):
        Job.parse({"env": {"name": "arrays", "file": "odd.npz"}}, tmp_path).environments()

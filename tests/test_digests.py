"""Runs are what they were before sources, memories, heads and protections became rooms: the first
episodes of rounds, w, Λ, what was sent, and the regret. `digests.py` says what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from digests import Digest, cases, libraries, parts_apart
from repeats import only_ci

BEFORE = json.loads(Path(__file__).with_name("digests.json").read_text())
RUNS = dict(cases())
BITS = BEFORE["by"] == libraries()
"""Elsewhere numbers are compared, up to rounding."""

QUICK = {
    "algorithm/async-coop/dense", "algorithm/centralised/dense", "algorithm/coop-lsvi/one-hot",
    "algorithm/fed-lsvi/one-hot", "algorithm/fed-ucbvi/dense", "algorithm/fedq-hoeffding/one-hot",
    "algorithm/independent/one-hot", "algorithm/periodic/dense", "algorithm/stale/dense",
    "finite/garnet/practical", "finite/random-linear/paper", "finite/river-swim/practical",
    "features/one-hot-unpacked", "cut/one-hot/cohorts-7", "cut/continuous/block-5",
    "continuous/fed-lsvi/paper", "continuous/rare-switch", "gym/frozen-lake-stepped",
    "keep/dense", "threads/continuous-keep", "run-folder",
}  # fmt: skip
"""A few of each kind."""


def play(name: str) -> Digest:
    with threadpool_limits(limits=1, user_api="blas"):
        return RUNS[name]()


AMPLIFIES = {"algorithm/coopts-lmc/dense"}
"""Whose Langevin steps turn a rounding of another processor into another run."""


def check(name: str) -> None:
    if name in AMPLIFIES and not BITS:
        assert play(name) == play(name)
        return
    assert not parts_apart(play(name), BEFORE["runs"][name], BITS)


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_run_is_what_it_was(name: str) -> None:
    check(name)


@only_ci
@pytest.mark.parametrize("name", sorted(BEFORE["runs"].keys() - QUICK - {"ray"}))
def test_every_run_is_what_it_was(name: str) -> None:
    check(name)


def test_another_run_has_another_digest() -> None:
    """In bits and in numbers, wherever only one entry differs or two change places."""
    name = "finite/garnet/paper"
    then = BEFORE["runs"][name]
    for part, digest in then.items():
        other = {key: value for key, value in digest.items() if key != "amounts"}
        if "close" in digest:
            last, norm, product = digest["close"]
            other["close"] = [last, norm, product * (1.0 + 1e-8)]
        assert parts_apart({**then, part: other}, then) == [part]
        assert parts_apart({**then, part: {**digest, "bits": "0"}}, then, bits=True) == [part]
    assert set(parts_apart({}, then)) == set(then)

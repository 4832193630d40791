"""A site restored from a backup at any moment never uses noise or masks for a second content."""

from __future__ import annotations

import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.core.trigger import schedule
from fedlsvi.errors import MessageRefused
from fedlsvi.privacy.protections import Protections
from fedlsvi.protocol.messages import Keep, Stop
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.remote.release_log import ReleaseLog
from repeats import repeats
from site_endpoints import SITES, Sites, failed

PROBLEM, OTHER = problems.one_hot(), problems.one_hot(seed=1)
EPISODES, ROUNDS = 60, 4
MOMENTS = repeats(6, 50)

Labels = dict[tuple[Any, ...], set[bytes]]


def plan(private: bool, problem: problems.Problem = PROBLEM) -> Plan:
    about: dict[str, Any] = {"gamma": 60.0, "beta": 0.5, "lam": 0.5}
    if private:
        about = {"rounds": ROUNDS, "policy": "explore", "privacy": {"epsilon": 5.0, "delta": 1e-6}}
    learner = FedLSVI(n_agents=SITES, aggregation="secure", stationary=False, **about)
    return make_plan(learner.settings, problem.envs, EPISODES, 3, features=PROBLEM.features)


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> Labels:
    """Everything that was hidden: what names a mask or noise, and hashes of what it hid."""
    used: Labels = {}
    leaving = Protections.leaving

    def recorded(self: Protections, upload: Any, words: np.ndarray, at: Any) -> Any:
        assert self.masks is not None
        content = sha256(words.data).digest()
        mask = ("mask", self._agents, self.masks.membership, at.round, upload.h, at.asked)
        used.setdefault(mask, set()).add(content)
        if self.noise is not None:
            used.setdefault(("noise", self._agents, at.release, upload.h), set()).add(content)
        return leaving(self, upload, words, at)

    monkeypatch.setattr(Protections, "leaving", recorded)
    return used


def ends(made: Plan) -> list[int]:
    """Where the rounds end: on the public schedule, where there is one."""
    floor = made.parameters.min_round
    return [int(t) for t in schedule(EPISODES, ROUNDS, floor)]


class Server(Sites):
    """A server that keeps a checkpoint, and goes back to it."""

    def keep(self) -> None:
        assert self.all(Keep(self.t)) == [None] * SITES
        self.kept = self.w.copy(), self.gram.copy(), self.round, self.t

    def back(self) -> bool:
        """Resume from the checkpoint; whether the sites take part."""
        self.w, self.gram, self.round, self.t = (np.copy(part) for part in self.kept)
        self.round, self.t = int(self.round), int(self.t)
        try:
            self.agreed(self.t)
        except AssertionError:  # a site refuses
            return False
        return True

    def breaks_off(self, t: int, steps: int) -> None:
        """Ask for the first steps of a round, and no more."""
        uploads = self.all(Stop(t))
        for h in range(self.p.horizon, self.p.horizon - steps, -1):
            assert not failed(uploads)
            self.add(h, uploads)
            uploads = self.all(self.model(h))

    def add(self, h: int, uploads: list[Any]) -> None:
        """Noisy sums make no model here: sites of a private run take any."""
        if self.p.privacy is None:
            super().add(h, uploads)


def uninterrupted(private: bool, folder: Path) -> bytes:
    sites = Sites(plan(private), folder)
    sites.agreed()
    for t in ends(sites.plan):
        sites.synchronise(t)
    sites.close()
    return sites.w.tobytes()


@pytest.mark.parametrize("private", [False, True])
def test_nothing_is_used_twice_however_sites_are_restored(
    private: bool, tmp_path: Path, labels: Labels
) -> None:
    """At a random moment some sites lose their disks, get journals of a random earlier moment back,
    and the server goes back to its checkpoint. In every second case the world does not play the
    same episodes again, as real ones do not: then something must be refused."""
    expected = None if private else uninterrupted(private, tmp_path / "whole")
    refusals = 0
    for moment in range(MOMENTS):
        labels.clear()
        rng = np.random.default_rng(moment)
        folder, repeatable = tmp_path / f"moment-{moment}", moment % 2 == 0
        server = Server(plan(private), folder)
        points = ends(server.plan)
        before = int(rng.integers(1, len(points) - 1))
        server.agreed()
        for t in points[:before]:
            server.synchronise(t)
        server.keep()
        backup = folder.with_name(f"backup-{moment}")
        shutil.copytree(folder, backup, ignore=shutil.ignore_patterns("*.secrets", ".lock"))
        after = int(rng.integers(before, len(points)))
        for t in points[before:after]:
            server.synchronise(t)
        if after < len(points):
            server.breaks_off(points[after], int(rng.integers(0, server.p.horizon)))
        lost = rng.permutation(SITES)[: int(rng.integers(1, SITES + 1))]
        server.close()
        for c in lost:
            shutil.rmtree(folder / f"agents-{c}-{c}")
            shutil.copytree(backup / f"agents-{c}-{c}", folder / f"agents-{c}-{c}")
        if not repeatable:
            other = plan(private, OTHER)
            server.factories = [replace(make, plan=other) for make in server.factories]
        try:
            server.restart()
            ended = server.back()
        except MessageRefused:  # it plays what its journal has asked since, and other data come
            ended = False
        for t in points[before:] if ended else []:
            uploads = server.all(Stop(t))
            for h in range(server.p.horizon, 0, -1):
                if failed(uploads):
                    ended = False
                    break
                server.add(h, uploads)
                uploads = server.all(server.model(h))
            if not ended:
                break
            server.round, server.t = server.round + 1, t
        server.close()
        assert all(len(contents) == 1 for contents in labels.values())
        if repeatable:
            assert ended
            assert expected is None or server.w.tobytes() == expected
        refusals += not ended
    assert 0 < refusals <= MOMENTS // 2


def test_without_the_record_of_releases_masks_would_serve_twice(
    tmp_path: Path, labels: Labels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above fails where a site does not look up what has left."""
    monkeypatch.setattr(ReleaseLog, "use", lambda *given: None)
    server = Server(plan(True), tmp_path / "sites")
    points = ends(server.plan)
    server.agreed()
    server.synchronise(points[0])
    server.keep()
    server.all(Stop(points[1]))
    server.close()
    server.factories = [replace(make, plan=plan(True, OTHER)) for make in server.factories]
    monkeypatch.setattr(ReleaseLog, "rounds", {1})
    server.restart()
    assert server.back()
    server.all(Stop(points[1]))
    server.close()
    assert any(len(contents) == 2 for contents in labels.values())

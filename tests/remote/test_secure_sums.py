"""Secure sums over frames: the same model, and a server in the middle that gets nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import InvalidInput, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.masks import new_private_key, public_key
from fedlsvi.protocol.messages import (
    Keep,
    KeyRequest,
    MaskedUpload,
    Member,
    Model,
    Reply,
    Request,
    Roster,
    SiteKey,
    Start,
    Stop,
)
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.remote.codec import Address, Failure, decode_reply, decode_request, encode, run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.masking import RECORD, STREAMS, used_streams
from fedlsvi.remote.retry_policy import RetryPolicy
from transports_over_frames import assert_same, over_frames

LEARNER = FedLSVI(n_agents=5, gamma=6.0, beta=0.5, lam=0.5, aggregation="secure")
EXACT = FedLSVI(n_agents=5, gamma=6.0, beta=0.5, lam=0.5, aggregation="exact")
PROBLEM = problems.simplex()


def learn(learner: FedLSVI, problem: Any = PROBLEM, **options: Any) -> Any:
    return learner.learn(problem.envs, 40, 3, features=problem.features, progress=False, **options)


@pytest.mark.parametrize("problem", [PROBLEM, problems.one_hot(), problems.continuous()])
def test_same_model_over_frames_whatever_the_split(problem: Any) -> None:
    exact = learn(EXACT, problem)
    assert_same(exact, learn(EXACT, problem, transport=over_frames(2)))
    for sites in (3, 5):
        secure = learn(LEARNER, problem, transport=over_frames(sites))
        assert_same(secure, learn(LEARNER, problem, cohorts=sites))
        assert secure.w.tobytes() == exact.w.tobytes()


@pytest.mark.parametrize("policy", [{"absent": "carry"}, {"absent": "exclude"},
                                    {"refused": "exclude"}])  # fmt: skip
def test_a_sum_without_a_site_is_refused(policy: dict[str, Any]) -> None:
    with refused(InvalidSetting, "bad-absent"):
        learn(LEARNER, transport=over_frames(3, retry=RetryPolicy(60.0, 2, **policy)))


def test_two_sites_are_refused() -> None:
    with refused(InvalidSetting, "too-few-sites", "2"):
        learn(LEARNER, transport=over_frames(2))


def test_an_endpoint_without_an_identity_is_refused() -> None:
    plan = make_plan(LEARNER.settings, PROBLEM.envs, 40, 3)
    with refused(InvalidInput, "no-identity"):
        Endpoint(lambda: plan.cohort(0, 2), plan.parameters, 1)


# a server in the middle


class Middle(ThreadTransport):
    """A server that changes the roster on its way to the sites."""

    change: Callable[[Roster], Roster]

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        changed = {}
        for c, frame in frames.items():
            address, message = decode_request(frame, self.layout)
            if isinstance(message, Roster):
                frame = encode(self.change(message), address)
            changed[c] = frame
        return super().exchange(changed, deadline)


def in_the_middle(change: Callable[[Roster], Roster]) -> Callable[[Plan], Middle]:
    def make(plan: Plan) -> Middle:
        made = endpoint_factories(plan, 3, threads=1)
        run = run_id(plan.parameters, plan.seed)
        transport = Middle(plan.parameters, made, run, RetryPolicy(60.0, 1), guard_for(plan))
        transport.change = change  # type: ignore[method-assign]
        return transport

    return make


def _own_key(roster: Roster) -> Roster:
    """The server puts a key of its own in place of site 1's."""
    first, second, third = roster.members
    return Roster((first, replace(second, public=public_key(new_private_key())), third))


def _own_key_and_proof(roster: Roster) -> Roster:
    """… with the proof of a third site, which is valid for that site's key."""
    first, second, third = roster.members
    return Roster((first, replace(second, public=third.public, proof=third.proof), third))


def _one_left(roster: Roster) -> Roster:
    return Roster(roster.members[:2])


def _merged(roster: Roster) -> Roster:
    """Two sites that claim to cover all agents."""
    first, second, third = roster.members
    return Roster((first, replace(second, agents=second.agents + third.agents)))


def _gap(roster: Roster) -> Roster:
    first, second, third = roster.members
    return Roster((first, second, replace(third, first=third.first + 1)))


@pytest.mark.parametrize(
    ("change", "code"),
    [(_own_key, "foreign-key"), (_own_key_and_proof, "foreign-key"), (_one_left, "too-few-sites"),
     (_merged, "too-few-sites"), (_gap, "sites-missing")],
)  # fmt: skip
def test_swapped_keys_and_missing_sites_are_refused_by_a_site(
    change: Callable[[Roster], Roster], code: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), refused(TransportError, "agent-failed", "MessageRefused"):
        learn(LEARNER, transport=in_the_middle(change))
    said = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert code in {error.code for error in said if isinstance(error, MessageRefused)}


class Sites:
    """Three sites that a server of the test's own speaks to."""

    def __init__(self, folder: Path | None = None) -> None:
        plan = make_plan(LEARNER.settings, PROBLEM.envs, 40, 3)
        self.plan, self.p, self.folder = plan, plan.parameters, folder
        self.run, self.turn = run_id(self.p, 3), [1, 0]
        self.round = 1
        self.factories = endpoint_factories(plan, 3, folder, durable=False, threads=1)
        self.endpoints = [make() for make in self.factories]

    def restart(self) -> None:
        """Every site ends and begins again from its journal."""
        self.close()
        self.endpoints = [make() for make in self.factories]

    def ask(self, message: Request, endpoint: Endpoint) -> Reply | Failure:
        address = Address(self.run, *self.turn, self.round, *endpoint.agents)
        return decode_reply(endpoint.handle(encode(message, address)), self.plan.layout)[1]

    def all(self, message: Request) -> list[Any]:
        """Ask every site; a Start begins a new epoch."""
        self.turn = [self.turn[0] + 1, 1] if isinstance(message, Start) else [
            self.turn[0], self.turn[1] + 1]  # fmt: skip
        return [self.ask(message, endpoint) for endpoint in self.endpoints]

    def start(self, t: int = 0) -> Roster:
        H, d, P = self.p.horizon, self.p.dim, self.p.dim * (self.p.dim + 1) // 2
        gram = np.tile(np.eye(d)[np.triu_indices(d)], (H, 1))
        assert gram.shape == (H, P)
        assert (
            self.all(Start(np.zeros((H, d)), gram, self.p.gamma, self.p.beta, 40, t)) == [None] * 3
        )
        keys = self.all(KeyRequest())
        assert all(isinstance(key, SiteKey) for key in keys)
        members = zip(self.endpoints, keys, strict=True)
        return Roster(tuple(Member(*e.agents, key.public, key.proof) for e, key in members))

    def agreed(self, t: int = 0) -> Roster:
        roster = self.start(t)
        assert self.all(roster) == [None] * 3
        return roster

    def synchronise(self, t: int, w: float = 0.1) -> list[list[MaskedUpload]]:
        """One round that ends at episode t: the uploads of steps H … 1."""
        d, H = self.p.dim, self.p.horizon
        gram = ((2.0 + t) * np.eye(d))[np.triu_indices(d)]
        uploads = [self.all(Stop(t))]
        for h in range(H, 0, -1):
            uploads.append(self.all(Model(h, np.full(d, w), gram)))
        assert uploads.pop() == [None] * 3
        self.round += 1
        return uploads

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()


def failed(replies: list[Any]) -> bool:
    return replies == [Failure("MessageRefused")] * 3


def refusals(caplog: pytest.LogCaptureFixture) -> set[str]:
    """What the sites' logs say was refused."""
    found = [record.exc_info[1] for record in caplog.records if record.exc_info]
    return {error.code for error in found if isinstance(error, MessageRefused)}


def as_bytes(uploads: list[list[MaskedUpload]]) -> list[bytes]:
    return [upload.words.tobytes() for step in uploads for upload in step]


def test_a_second_mask_of_other_content_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server goes back to a snapshot. The same round again gives the same bytes; with another
    end, or another model in its middle, the site refuses and its log says why."""
    sites = Sites(tmp_path)
    sites.agreed()
    sites.synchronise(5)
    assert sites.all(Keep(5)) == [None] * 3
    second = sites.synchronise(10)

    sites.restart()
    sites.agreed(5)
    sites.round = 2
    assert as_bytes(sites.synchronise(10)) == as_bytes(second)

    sites.agreed(5)
    sites.round = 2
    assert failed(sites.all(Stop(9)))
    assert refusals(caplog) == {"mask-used"}

    caplog.clear()
    sites.agreed(5)
    sites.round = 2
    d, H = sites.p.dim, sites.p.horizon
    assert isinstance(sites.all(Stop(10))[0], MaskedUpload)
    other = Model(H, np.full(d, 0.2), (12.0 * np.eye(d))[np.triu_indices(d)])
    assert failed(sites.all(other))  # b of step H − 1 would have another V
    assert refusals(caplog) == {"mask-used"}
    sites.close()


def test_a_membership_is_agreed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After it was agreed no other is accepted, nor an old one after a new beginning."""
    sites = Sites(tmp_path)
    old = sites.agreed()
    sites.synchronise(5)
    assert sites.all(Keep(5)) == [None] * 3

    roster = sites.start(5)  # a site has left, it says
    assert roster == old
    assert failed(sites.all(Roster(roster.members[:2])))
    assert refusals(caplog) == {"other-membership"}

    caplog.clear()
    new = sites.start(0)
    assert not {m.public for m in new.members} & {m.public for m in old.members}
    assert failed(sites.all(old))
    assert refusals(caplog) == {"own-key-missing"}
    sites.close()


def test_nothing_is_masked_before_a_membership(caplog: pytest.LogCaptureFixture) -> None:
    sites = Sites()
    sites.start()
    assert failed(sites.all(Stop(5)))
    assert refusals(caplog) == {"no-membership"}
    sites.close()


def test_a_lie_shows_in_the_sum() -> None:
    """One site's share is out of reach, but the sum must be one that agents can have."""

    class Lying(ThreadTransport):
        def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
            for c, data in super().exchange(frames, deadline):
                address, reply = decode_reply(data, self.layout)
                if isinstance(reply, MaskedUpload) and c == 1:
                    words = reply.words.copy()
                    words[:1] += np.uint64(1 << 60)  # an array wraps without a warning
                    data = encode(MaskedUpload(reply.h, words), address)
                yield c, data

    def make(plan: Plan) -> Lying:
        made = endpoint_factories(plan, 3, threads=1)
        run = run_id(plan.parameters, plan.seed)
        return Lying(plan.parameters, made, run, RetryPolicy(60.0, 1), guard_for(plan))

    with refused(Refusal, "impossible-message", "sum over all sites") as caught:
        learn(LEARNER, transport=make)
    assert isinstance(caught.value, Refusal)
    assert (caught.value.agent, caught.value.round) == (-1, 1)


def test_a_torn_record_of_a_stream_is_cut_off(tmp_path: Path) -> None:
    record = RECORD.pack(bytes(32), 1, 2, bytes(32))
    (tmp_path / STREAMS).write_bytes(record + record[:17])
    assert used_streams(tmp_path) == {(bytes(32), 1, 2): bytes(32)}
    assert (tmp_path / STREAMS).read_bytes() == record

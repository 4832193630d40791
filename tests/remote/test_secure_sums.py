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
from fedlsvi.features import FourierFeatures
from fedlsvi.features.base import CallableFeatures
from fedlsvi.privacy.masks import new_private_key, public_key
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import (
    Keep,
    MaskedUpload,
    Roster,
    Stop,
)
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.remote.codec import decode_reply, decode_request, encode, run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from site_endpoints import Sites, failed, refusals
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


LAWFUL: list[dict[str, Any]] = [
    {"min_round": 6}, {"exchange": "one-trip"}, {"stationary": True}, {"policy": "exploit"},
    {"exchange": "one-trip", "stationary": True}, {"gamma": 1.0, "rounds": 5},
]  # fmt: skip


@pytest.mark.parametrize(
    ("env", "own"),
    [
        (env, own)
        for env in ("CartPole-v1", "CliffWalking-v1", "chain")
        for own in LAWFUL
        if env != "CartPole-v1" or "exchange" not in own  # one trip needs finite states
    ],
    ids=str,
)
def test_lawful_models_are_obeyed(env: str, own: dict[str, Any]) -> None:
    """Sites refuse none of the models of an honest run: with increments that wait, one matrix for
    all steps, all steps at once, and episodes that end early."""
    about: dict[str, Any] = {"n_agents": 3, "gamma": 8.0, "stationary": False} | own
    world: Any = problems.chain().envs if env == "chain" else env
    sums = {}
    for kind in ("exact", "secure"):
        learner = FedLSVI(**about, aggregation=kind)
        options: dict[str, Any] = {} if kind == "exact" else {"transport": over_frames(3)}
        if env != "chain":
            options["horizon"] = 12
        if env == "CartPole-v1":
            options["features"] = FourierFeatures()
        sums[kind] = learner.learn(world, 40, 3, progress=False, **options)
    assert sums["exact"].w.tobytes() == sums["secure"].w.tobytes()
    assert sums["exact"].taus == sums["secure"].taus


@pytest.mark.parametrize("policy", [{"absent": "carry"}, {"absent": "exclude"},
                                    {"refused": "exclude"}])  # fmt: skip
def test_a_sum_without_a_site_is_refused(policy: dict[str, Any]) -> None:
    with refused(InvalidSetting, "bad-absent"):
        learn(LEARNER, transport=over_frames(3, retry=RetryPolicy(PATIENCE, 2, **policy)))


def test_two_sites_are_refused() -> None:
    with refused(InvalidSetting, "too-few-sites", "2"):
        learn(LEARNER, transport=over_frames(2))


def test_an_endpoint_without_an_identity_is_refused() -> None:
    plan = make_plan(LEARNER.settings, PROBLEM.envs, 40, 3)
    with refused(InvalidInput, "no-identity"):
        Endpoint(lambda: cohort_of(plan, 0, 2), plan.parameters, 1)


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
        transport = Middle(plan.parameters, made, run, RetryPolicy(PATIENCE, 1), guard_for(plan))
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


@pytest.fixture
def sites(tmp_path: Path) -> Any:
    made = Sites(make_plan(LEARNER.settings, PROBLEM.envs, 40, 3), tmp_path)
    yield made
    made.close()


def test_a_membership_is_agreed_once(sites: Sites, caplog: pytest.LogCaptureFixture) -> None:
    """After it was agreed no other is accepted, nor an old one after a new beginning."""
    begun = sites.w.copy(), sites.gram.copy()
    old = sites.agreed()
    sites.synchronise(5)
    assert sites.all(Keep(5)) == [None] * 3

    roster = sites.start(5)  # a site has left, it says
    assert roster == old
    assert failed(sites.all(Roster(roster.members[:2])))
    assert refusals(caplog) == {"other-membership"}

    caplog.clear()
    (sites.w, sites.gram), sites.round = begun, 1
    new = sites.start(0)
    assert not {m.public for m in new.members} & {m.public for m in old.members}
    assert failed(sites.all(old))
    assert refusals(caplog) == {"own-key-missing"}


def test_nothing_is_masked_before_a_membership(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    sites.start()
    assert failed(sites.all(Stop(5)))
    assert refusals(caplog) == {"no-membership"}


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
        return Lying(plan.parameters, made, run, RetryPolicy(PATIENCE, 1), guard_for(plan))

    with refused(Refusal, "impossible-message", "sum over all sites") as caught:
        learn(LEARNER, transport=make)
    assert isinstance(caught.value, Refusal)
    assert (caught.value.agent, caught.value.round) == (-1, 1)
    assert "agent -1" not in str(caught.value)


def of_sites(extra: int = 0) -> Callable[[Plan], ThreadTransport]:
    """The transport of a federation whose server knows no more of features than `one_hot`; the
    first site adds `extra` to its first sum in round 3."""

    class Adding(ThreadTransport):
        def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
            for c, data in super().exchange(frames, deadline):
                address, reply = decode_reply(data, self.layout)
                if isinstance(reply, MaskedUpload) and (c, address.round) == (0, 3):
                    words = reply.words.copy()
                    words[:1] += np.uint64(extra << bits)
                    data = encode(MaskedUpload(reply.h, words), address)
                yield c, data

    def make(plan: Plan) -> ThreadTransport:
        nonlocal bits
        p = plan.parameters
        bits, one_hot = p.scale_bits, p.packing == "diagonal"
        agreed = Federation("ward", p.episodes, p.horizon, p.dim, one_hot=one_hot)
        made = endpoint_factories(plan, 3, threads=1)
        guard = Guard(plan.layout, agreed.bounds(p))
        return Adding(p, made, run_id(p, plan.seed), RetryPolicy(PATIENCE, 1), guard)

    bits = 0
    return make


LAKE = {"env": "FrozenLake-v1", "horizon": 6}
POLE = {"env": "CartPole-v1", "horizon": 25,
        "features": CallableFeatures(lambda x: np.eye(2)[None].repeat(len(x), 0))}  # fmt: skip
FLOOR = FedLSVI(n_agents=5, gamma=6.0, beta=0.5, lam=0.5, aggregation="secure", min_round=8,
                stationary=False)  # fmt: skip


@pytest.mark.parametrize(("where", "waits"), [(LAKE, False), (POLE, True)])
def test_a_floor_where_episodes_may_end_early(where: dict[str, Any], waits: bool) -> None:
    """Unit vectors on numbered states, where every episode counts at every step, and on vectors,
    where so few episodes reach the late steps that these wait."""
    here = FLOOR.learn(episodes=60, seed=3, cohorts=3, progress=False, **where)
    there = FLOOR.learn(episodes=60, seed=3, transport=of_sites(), progress=False, **where)
    assert_same(here, there)
    visits = np.trace(there.gram, axis1=1, axis2=2) - 0.5 * there.gram.shape[1]
    assert len(there.records) > 2
    assert visits[0] == 5 * 60
    assert (visits[-1] < visits[0]) == waits


def test_a_visit_too_many_shows_under_a_floor() -> None:
    with refused(Refusal, "impossible-message", "sum of counts") as caught:
        FLOOR.learn(episodes=60, seed=3, transport=of_sites(1), progress=False, **LAKE)
    assert isinstance(caught.value, Refusal)
    assert (caught.value.agent, caught.value.round) == (-1, 3)

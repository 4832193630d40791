"""A site whose data contradict those of all others is noticed; honest ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.core.statistics import factorise, identity, unpack
from fedlsvi.envs import RandomLinearMDP, RiverSwim, xi_close
from fedlsvi.errors import InvalidSetting, MessageRefused
from fedlsvi.protocol.messages import NextStates, Upload
from fedlsvi.remote import suspicion
from fedlsvi.remote.codec import decode_reply, encode
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.suspicion import due, residuals, scheduled, suspect
from patience import PATIENCE
from transports_over_frames import over_frames

M, EPISODES, LIAR = 4, 120, 3
ENV = RandomLinearMDP(n_states=8, n_actions=2, dim=4, horizon=3, seed=2)
SWIM = RiverSwim(n_states=3, horizon=4)

Lie = Callable[[Upload], Upload]


def zero(upload: Upload) -> Upload:
    return replace(upload, b=0.0 * upload.b)


def halved(upload: Upload) -> Upload:
    return replace(upload, b=0.5 * upload.b)


def elsewhere(upload: Upload) -> Upload:
    """All that the site did led to state 0 of SWIM, where nothing is earned."""
    tables = []
    for table in upload.following:
        responses = SWIM.n_states * SWIM.n_actions + 2  # with Σr e_{x'} and Σe_{x'}
        whole = np.zeros((SWIM.horizon - 1) * responses * SWIM.n_states)
        whole[table.places] = table.values
        rows = whole.reshape(-1, SWIM.n_states)
        rows[:, 0], rows[:, 1:] = rows.sum(axis=1), 0.0
        tables.append(NextStates(np.empty(0, np.int64), rows.ravel()))
    return replace(upload, following=tuple(tables))


def lying(make: Any, lie: Lie, liar: int = LIAR, in_pass: bool = False) -> Any:
    """Makes a transport over whose frames a site lies, within all bounds; in the pass after the
    last round alone, where that is said."""

    def made(plan: Any) -> Any:
        transport = make(plan)
        honest = transport.handlers[liar].handle

        def handle(frame: bytes) -> bytes:
            answer: bytes = honest(frame)
            address, reply = decode_reply(answer, transport.layout)
            honest_here = in_pass and not transport.guard.exploiting
            if not isinstance(reply, Upload) or honest_here:
                return answer
            b, squares = np.split(reply.b, [transport.layout.dim], axis=-1)
            told = lie(replace(reply, b=b))  # Σy² and n, where they are sent, stay true
            return encode(replace(told, b=np.concatenate([told.b, squares], axis=-1)), address)

        transport.handlers[liar].handle = handle
        return transport

    return made


def learn(
    suspicious: Any, lie: Lie | None = halved, env: Any = ENV, in_pass: bool = False, **options: Any
) -> Any:
    make: Any = over_frames(M, retry=RetryPolicy(PATIENCE, 1, suspicious=suspicious))
    if lie is not None:
        make = lying(make, lie, in_pass=in_pass)
    learner = FedLSVI(n_agents=M, **options.pop("settings", {}))
    return learner.learn(env, EPISODES, 0, transport=make, progress=False, **options)


def notes(run: Any) -> list[str]:
    return [note for record in run.records for note in record.notes]


def test_residuals_by_hand() -> None:
    """Three sites with one feature: 4, 9 and 1 visits, targets 1, 1 and 0."""
    gram, b, lam = np.array([[4.0], [9.0], [1.0]]), np.array([[4.0], [9.0], [0.0]]), 0.5
    weight = [9.0 / 10.5, 4.0 / 5.5, 13.0 / 13.5]
    e = b[:, 0] - gram[:, 0] * weight
    expected = e**2 * (1.0 / (gram[:, 0] + 1.0) - 1.0 / (14.0 + lam + 1.0))
    np.testing.assert_allclose(residuals(gram, b, lam), expected)
    np.testing.assert_allclose(residuals(gram[:, :, None], b, lam), expected)


def test_diagonals_are_matrices() -> None:
    rng = np.random.default_rng(0)
    counts, b = rng.integers(0, 9, (5, 6)).astype(float), rng.random((5, 6))
    full = np.stack([np.diag(row) for row in counts])
    np.testing.assert_allclose(residuals(counts, b, 0.1), residuals(full, b, 0.1))
    one, other = (suspect(gram, b, 0.1, 1.0, 0.1) for gram in (counts, full))
    assert one.site == other.site
    np.testing.assert_allclose([one.residual, one.limit], [other.residual, other.limit])


def test_who_saw_what_nobody_else_saw_contradicts_nobody() -> None:
    """Where the others have no data there is nothing to contradict."""
    gram = np.zeros((4, 2))
    gram[:3, 0], gram[3, 1] = 100.0, 100.0
    b = np.array([[50.0, 0.0]] * 3 + [[0.0, 100.0]])
    assert not suspect(gram, b, 1e-3, 1.0, 0.0).suspected
    b[3], gram[3] = [100.0, 0.0], [100.0, 0.0]  # the same targets where the others have data
    found = suspect(gram, b, 1e-3, 1.0, 0.0)
    assert found.suspected
    assert found.site == 3


def test_an_agreed_heterogeneity_is_allowed_for() -> None:
    gram = np.full((4, 1), 1000.0)
    b = np.array([[500.0], [500.0], [500.0], [560.0]])
    assert suspect(gram, b, 1e-3, 1.0, xi=0.0).suspected
    assert not suspect(gram, b, 1e-3, 1.0, xi=0.1).suspected


def test_two_that_tell_the_same_lie_are_suspected() -> None:
    """Of five sites, two say 0 where three say 1; of four nobody can tell who is right."""
    gram = np.full((5, 1), 100.0)
    b = np.array([[100.0], [99.0], [101.0], [0.0], [0.0]])
    assert suspect(gram, b, 1e-3, 1.0, 0.0).suspected
    assert suspect(gram, b, 1e-3, 1.0, 0.0).site in (3, 4)
    assert not suspect(gram[1:], b[1:], 1e-3, 1.0, 0.0).suspected


SECRETS = [bytes([i]) * 32 for i in range(8)]


def test_sites_are_compared_as_episodes_grow() -> None:
    ends = np.unique(np.geomspace(1, 10_000, 400).astype(int)).tolist()
    rounds = list(zip([0, *ends], ends, strict=False))
    compared = sum(scheduled(a, b) for a, b in rounds)
    assert scheduled(0, 1)
    assert 60 < compared < 110  # log 10,000 / log 1.1 = 97, and early rounds coincide
    assert all(due(a, b, secret) for a, b in rounds if scheduled(a, b) for secret in SECRETS)


def test_nobody_knows_the_other_rounds_in_which_sites_are_compared() -> None:
    """A quarter of them, other ones under another secret, and the same after a restart."""
    rounds = [(t, t + 1) for t in range(1000, 3000) if not scheduled(t, t + 1)]
    drawn = np.array([[due(a, b, secret) for a, b in rounds] for secret in SECRETS])
    assert (np.abs(drawn.mean(axis=1) - 0.25) < 0.05).all()  # 5 standard deviations
    together = (drawn[:, None] & drawn[None]).mean(axis=2)[~np.eye(len(SECRETS), dtype=bool)]
    assert (np.abs(together - 0.25**2) < 0.03).all()
    again = [due(a, b, SECRETS[0]) for a, b in rounds]
    assert again == drawn[0].tolist()


class Timed:
    """A liar that is honest in every round in which everybody knows that sites are compared, and
    at step H, where its sums can be checked against earlier ones."""

    def __init__(self, horizon: int) -> None:
        self.horizon, self.before, self.t = horizon, 0, 0

    def __call__(self, upload: Upload) -> Upload:
        if upload.h == self.horizon:
            self.before, self.t = self.t, self.t + 1  # γ = 1: every round is one episode
        if upload.h == self.horizon or scheduled(self.before, self.t):
            return upload
        return halved(upload)


def test_a_liar_cannot_choose_when_to_be_honest() -> None:
    """It lies in 80 of 120 rounds and escapes all comparisons with probability .75⁸⁰ = 10⁻¹⁰."""
    run = learn("note", Timed(ENV.horizon), settings={"gamma": 1.0, "policy": "explore"})
    (note,) = notes(run)
    assert f"agent {LIAR} suspected" in note


def test_a_resumed_run_compares_in_the_same_rounds(tmp_path: Path) -> None:
    make = over_frames(M, retry=RetryPolicy(PATIENCE, 1, suspicious="note"))
    seen: list[str] = []

    def watched(plan: Any) -> Any:
        transport = make(plan)
        arrays, plain = transport.reachability.state()
        fresh = make(plan).reachability
        before = fresh.state()[1]["compare"]
        fresh.restore(arrays, plain)
        seen.extend([before, fresh.state()[1]["compare"], plain["compare"]])
        return transport

    FedLSVI(n_agents=M).learn(ENV, 4, 0, transport=watched, progress=False)
    before, restored, saved = seen
    assert restored == saved != before


@pytest.mark.parametrize("lie", [zero, halved])
def test_a_liar_is_noted_once(lie: Lie) -> None:
    run = learn("note", lie)
    (note,) = notes(run)
    assert f"agent {LIAR} suspected" in note
    assert run.rounds > 3


def test_a_liar_is_excluded_and_the_others_go_on() -> None:
    run = learn("exclude")
    (note,) = notes(run)
    assert f"agent {LIAR} excluded" in note
    # a feature vector on the simplex adds 1 to 1ᵀΛ1: only the others' episodes are left
    visits = run.gram.sum(axis=(1, 2)) - run.parameters.dim * run.parameters.lam
    np.testing.assert_allclose(visits, 3 * EPISODES, rtol=1e-9)


def test_a_run_may_stop_for_a_liar() -> None:
    with refused(MessageRefused, "contradicts-others", f"agent {LIAR}"):
        learn("fail")


@pytest.mark.parametrize("env", [ENV, xi_close(ENV, M, 0.05, seed=1), SWIM],
                         ids=["alike", "different", "one-hot"])  # fmt: skip
def test_honest_sites_are_left_alone(env: Any) -> None:
    """And nothing else about the run changes."""
    there = learn("fail", None, env)
    here = FedLSVI(n_agents=M).learn(env, EPISODES, 0, progress=False)
    assert there.w.tobytes() == here.w.tobytes()
    assert notes(there) == []


def test_one_hot_liars_are_found_too() -> None:
    assert any("suspected" in note for note in notes(learn("note", zero, SWIM)))


def test_a_suspect_is_noted_once_also_after_a_restart(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if record.notes:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    retry = RetryPolicy(PATIENCE, 1)
    make = lying(over_frames(M, tmp_path / "journals", retry), halved)
    with pytest.raises(KeyboardInterrupt):
        FedLSVI(n_agents=M).learn(ENV, EPISODES, 0, folder=folder, checkpoint_seconds=0.0,
                                  observers=[stop], transport=make, progress=False)  # fmt: skip
    run = fedlsvi.resume(folder, transport=make, progress=False)
    assert len(notes(run)) == 1
    assert run.w.tobytes() == learn("note").w.tobytes()


def test_two_sites_are_not_compared() -> None:
    """Nobody can tell which of them lies."""
    make = lying(over_frames(2), zero, liar=1)
    run = FedLSVI(n_agents=2).learn(ENV, EPISODES, 0, transport=make, progress=False)
    assert notes(run) == []


def test_where_sites_are_not_compared_that_is_said() -> None:
    with refused(InvalidSetting, "bad-suspicious", "exclude"):
        learn("exclude", None, settings={"aggregation": "secure"})


TRIP = {"exchange": "one-trip", "stationary": False}


@pytest.mark.parametrize(
    ("lie", "env", "stationary"),
    [(zero, ENV, False), (halved, ENV, False), (zero, SWIM, True), (elsewhere, SWIM, False)],
    ids=["nothing", "half", "shared", "elsewhere"],
)
def test_a_liar_of_one_trip_is_taken_out(lie: Lie, env: Any, stationary: bool) -> None:
    """The server forms each site's b_h from what it sent; nothing of a site that lies about
    rewards, or about where it went, stays in Λ."""
    run = learn("exclude", lie, env, settings=TRIP | {"stationary": stationary})
    (note,) = notes(run)
    assert f"agent {LIAR} excluded" in note
    p = run.parameters
    visits = run.gram.sum(axis=(1, 2))  # both kinds of features sum to one
    vectors = 3 * EPISODES * (p.horizon if stationary else 1)
    np.testing.assert_allclose(visits - p.dim * p.lam, vectors, rtol=1e-9)


def test_honest_sites_of_one_trip_are_left_alone() -> None:
    for env in (ENV, xi_close(ENV, M, 0.05, seed=1), SWIM):
        assert notes(learn("fail", None, env, settings=TRIP)) == []


# what no later round corrects


def test_a_liar_in_the_last_round_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether that round is drawn or not: the model that it leads to stays."""
    monkeypatch.setattr(suspicion, "due", lambda *given: False)
    sent: list[int] = []

    def late(upload: Upload) -> Upload:
        sent.append(upload.h)
        honest = len(sent) <= (EPISODES - 1) * ENV.horizon or upload.h == ENV.horizon
        return upload if honest else zero(upload)

    run = learn("note", late, settings={"gamma": 1.0, "policy": "explore"})
    assert len(sent) == EPISODES * ENV.horizon
    (note,) = run.records[-1].notes
    assert f"agent {LIAR} suspected" in note


def test_a_liar_in_the_pass_after_the_last_round_is_found() -> None:
    """Honest in every round; only the policy to deploy is spoiled."""
    run = learn("note", zero, in_pass=True)
    (note,) = run.records[-1].notes
    assert note.startswith(f"round {run.rounds}: agent {LIAR} suspected")
    with refused(MessageRefused, "contradicts-others", f"agent {LIAR}"):
        learn("fail", zero, in_pass=True)


@pytest.mark.parametrize(
    ("env", "settings"),
    [(ENV, {}), (ENV, {"aggregation": "exact"}), (SWIM, {}), (SWIM, {"stationary": True})],
    ids=["dense", "exact", "one-hot", "shared"],
)
def test_who_lies_in_the_pass_is_left_out_of_it(env: Any, settings: dict[str, Any]) -> None:
    """Its visits are still in Λ. The policy follows from the sums of the others all the same:
    w = (λI + Σ_{i≠c} G_i)⁻¹ Σ_{i≠c} b_i at every step."""
    sent: dict[int, list[np.ndarray]] = {}
    made: list[Any] = []

    def recorded(plan: Any) -> Any:
        make = over_frames(M, retry=RetryPolicy(PATIENCE, 1, suspicious="exclude"))
        transport = lying(make, zero, in_pass=True)(plan)
        made.append(transport)
        for c in range(M):
            if c != LIAR:
                transport.handlers[c].handle = listening(transport, c)
        return transport

    def listening(transport: Any, c: int) -> Callable[[bytes], bytes]:
        honest = transport.handlers[c].handle

        def handle(frame: bytes) -> bytes:
            answer: bytes = honest(frame)
            _, reply = decode_reply(answer, transport.layout)
            if isinstance(reply, Upload) and transport.guard.exploiting:
                sent.setdefault(reply.h, []).append(reply.b[0])
            return answer

        return handle

    settings = {"stationary": False} | settings
    learner = FedLSVI(n_agents=M, **settings)
    run = learner.learn(env, EPISODES, 0, transport=recorded, progress=False)
    (note,) = notes(run)
    assert f"agent {LIAR} excluded" in note
    p, grams, others = run.parameters, made[0].guard.gram, [c for c in range(M) if c != LIAR]
    assert sorted(sent) == list(range(1, p.horizon + 1))
    for h, b in sent.items():
        assert len(b) == M - 1
        own = unpack(grams[min(h, len(grams)) - 1], p.dim, p.packing)
        gram = identity(p.dim, p.lam, p.packing) + own[others].sum(axis=0)
        w = factorise(gram).solve(np.sum(b, axis=0))
        np.testing.assert_allclose(run.policy_w[h - 1], w, rtol=1e-6, atol=1e-6)

"""What no honest agent could have sent is refused, by name, before anything changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import MessageRefused
from fedlsvi.learner import drive
from fedlsvi.protocol.messages import Signal, Stop, Upload
from fedlsvi.remote.codec import decode_reply, encode, run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from repeats import repeats
from transports_over_frames import over_frames

Rows = tuple[np.ndarray, np.ndarray]


def in_the_middle(problem: Any, packing: str = "auto", rounds: int = 4) -> Any:
    """A session some rounds in, after `Stop`: its guard, and the honest upload of step H."""
    own: dict[str, Any] = {"packing": packing, "stationary": False}
    learner = FedLSVI(n_agents=4, gamma=12.0, beta=0.5, lam=0.5, **own)
    session = learner.prepare(problem.envs, 200, 2, transport=over_frames(1))
    playing = session.rounds()
    for _ in range(rounds):
        next(playing)
    transport: Any = session.player.transport
    signal = transport.wait(session.player.server.t, 200 - session.player.server.t)
    transport.next_request([0])
    transport.guard.sends(Stop(signal.t))
    frame = encode(Stop(signal.t), transport.address(0))
    _, upload = decode_reply(transport.handlers[0].handle(frame), transport.layout)
    assert isinstance(upload, Upload)
    return session, transport.guard, upload


def fingerprint(session: Any) -> str:
    guard = session.player.transport.guard
    parts = (session.player.server.w, session.player.server.gram, guard.gram, guard.last)
    plain = (session.player.server.t, session.player.server.k, guard.t, guard.round, guard.length)
    return hashlib.sha256(b"".join(a.tobytes() for a in parts) + repr(plain).encode()).hexdigest()


def _outer(rng: np.random.Generator, d: int, scale: float) -> np.ndarray:
    x = rng.normal(size=d)
    x *= np.sqrt(scale) / np.linalg.norm(x)
    return np.outer(x, x)[np.triu_indices(d)]


def mutations(n: int, t: int, d: int, y: float) -> dict[str, Callable[[Any, Rows, int], Any]]:
    """Ways in which one agent's row of an upload can be impossible."""

    def put(which: int, value: float) -> Callable[[Any, Rows, int], None]:
        def change(rng: Any, rows: Rows, i: int) -> None:
            rows[which][i, rng.integers(rows[which].shape[1])] = value

        return change

    def negative(rng: Any, rows: Rows, i: int) -> None:
        rows[0][i] -= _outer(rng, d, n * rng.uniform(1.05, 3.0))

    def heavy(rng: Any, rows: Rows, i: int) -> None:
        rows[0][i] += _outer(rng, d, n * rng.uniform(1.01, 4.0))

    def rotated(rng: Any, rows: Rows, i: int) -> None:
        """A response that no rewards in [0, 1] and values below the ceiling could give."""
        direction = rng.normal(size=d)
        rows[1][i] = direction / np.linalg.norm(direction) * y * t * rng.uniform(1.01, 9.0)

    def grown(rng: Any, rows: Rows, i: int) -> None:
        rows[1][i] = rows[1][i] * (1.0 + 10.0 ** rng.uniform(3, 8)) + 10.0 * t * y

    def sign(rng: Any, rows: Rows, i: int) -> None:
        rows[1][i] = -np.abs(rows[1][i]) - y * t

    return {
        "nan in gram": put(0, np.nan), "inf in gram": put(0, np.inf),
        "nan in b": put(1, np.nan), "inf in b": put(1, -np.inf),
        "not positive": negative, "trace": heavy, "response": rotated, "huge response": grown,
        "negative response": sign,
    }  # fmt: skip


@pytest.mark.parametrize("problem", [problems.simplex(), problems.deterministic()],
                         ids=["simplex", "signed"])  # fmt: skip
def test_malformed_uploads(problem: Any) -> None:
    """All are refused with the agent's name, none changes state; the honest upload passes before
    and after."""
    session, guard, upload = in_the_middle(problem)
    before, H, d = fingerprint(session), guard.layout.horizon, guard.layout.dim
    guard.upload(0, 4, H, upload)
    ways = mutations(guard.length, guard.t + guard.length, d, float(guard.facts.y_max[H - 1]))
    names, rng = list(ways), np.random.default_rng(0)
    for number in range(repeats(500, 5000)):
        rows, i = (upload.gram.copy(), upload.b.copy()), int(rng.integers(4))
        ways[names[number % len(names)]](rng, rows, i)
        with pytest.raises(Refusal) as caught:
            guard.upload(0, 4, H, Upload(H, *rows))
        assert caught.value.agent == i, names[number % len(names)]
        assert f"agent {i}, round {guard.round}, step {H}" in str(caught.value)
    guard.upload(0, 4, H, upload)
    assert fingerprint(session) == before
    session.close()


def test_a_gram_that_is_not_positive_is_called_so() -> None:
    """In a round of at least d episodes, where only a sign is wrong."""
    session, guard, upload = in_the_middle(problems.simplex(S=6, A=2, d=3, H=3))
    H, d = guard.layout.horizon, guard.layout.dim
    assert guard.length >= d
    gram = upload.gram.copy()
    gram[2] -= _outer(np.random.default_rng(0), d, 1.1 * guard.length)
    with refused(Refusal, "impossible-message", "agent 2", "smallest eigenvalue of gram is -"):
        guard.upload(0, 4, H, Upload(H, gram, upload.b))
    session.close()


def test_counts_must_be_counts() -> None:
    """One-hot features: the Gram matrix is a table of visits."""
    session, guard, upload = in_the_middle(problems.one_hot())
    H = guard.layout.horizon
    guard.upload(0, 4, H, upload)
    for change, words in [
        (lambda g, b: g.__setitem__((2, 0), -1.0), "smallest count"),
        (lambda g, b: g.__setitem__((2, 0), g[2, 0] + 0.5), "fraction"),
        (lambda g, b: g.__setitem__((2, 0), g[2, 0] + 1.0), "sum of counts"),
        (lambda g, b: b.__setitem__((2, 0), -0.5), "smallest entry"),
        (lambda g, b: b.__setitem__((2, 0), 1e3), "beyond its bound"),
    ]:
        gram, b = upload.gram.copy(), upload.b.copy()
        change(gram, b)
        with refused(Refusal, "impossible-message", words) as caught:
            guard.upload(0, 4, H, Upload(H, gram, b))
        assert caught.value.agent == 2
    session.close()


def test_steps_and_symmetry() -> None:
    session, guard, upload = in_the_middle(problems.simplex(), packing="dense")
    H, (gram, b) = guard.layout.horizon, (upload.gram, upload.b)
    skew = gram.copy()
    skew[1, 1] += 0.01
    for bad, words in [
        (Upload(H - 1, gram, b), "step"),
        (Upload(H, skew, b), "asymmetry"),
    ]:
        with refused(Refusal, "impossible-message", words):
            guard.upload(0, 4, H, bad)
    session.close()


def test_rank_is_at_most_the_number_of_episodes() -> None:
    learner = FedLSVI(n_agents=2, gamma=1.0, lam=0.5)
    plan = learner.prepare(problems.simplex().envs, 20, 0).plan
    session = learner.prepare(problems.simplex().envs, 20, 0, transport=over_frames(1))
    guard = Guard(plan.layout, session.player.transport.guard.facts)  # type: ignore[attr-defined]
    guard.sends(session.player.server.parameters())
    guard.sends(Stop(1))
    d = plan.layout.dim
    gram = np.tile((np.eye(d) / d)[np.triu_indices(d)], (2, 1))
    with refused(Refusal, "impossible-message", "rank"):
        guard.upload(0, 2, plan.layout.horizon, Upload(plan.layout.horizon, gram, np.zeros((2, d))))
    session.close()


@pytest.mark.parametrize(
    ("signal", "words"),
    [
        (Signal(10**6, np.array([0]), np.array([1])), "signal's t"),
        (Signal(-3, np.array([0]), np.array([1])), "signal's t"),
        (Signal(3, np.array([7]), np.array([1])), "signal's agents"),
        (Signal(3, np.array([1, 1]), np.array([1, 1])), "signal's agents"),
        (Signal(3, np.array([0]), np.array([99])), "signal's step"),
        (Signal(3, np.array([0]), np.array([0])), "signal's step"),
    ],
)
def test_unlawful_signals(signal: Signal, words: str) -> None:
    learner = FedLSVI(n_agents=2, gamma=6.0)
    session = learner.prepare(problems.simplex().envs, 20, 0, transport=over_frames(1))
    with refused(Refusal, "impossible-message", words):
        session.player.transport.guard.signal(0, 2, signal)  # type: ignore[attr-defined]
    session.close()


def test_who_signals_must_show_the_determinant() -> None:
    """An agent that stops the round for nothing is found out when it uploads."""
    session, guard, upload = in_the_middle(problems.simplex())
    H = guard.layout.horizon
    guard.facts = replace(guard.facts, trigger=replace(guard.facts.trigger, gamma=1e9))
    guard.stops(Signal(guard.t + guard.length, np.array([1]), np.array([H])))
    with refused(Refusal, "impossible-message", "log ratio of determinants") as caught:
        guard.upload(0, 4, H, upload)
    assert caught.value.agent == 1
    session.close()


@given(st.data())
def test_damaged_frames_are_refused(data: Any) -> None:
    """Truncated, oversize, any byte changed: never decoded, whatever kind it was."""
    session, _, upload = _cached()
    layout = session.player.transport.layout
    frame = encode(upload, session.player.transport.address(0))
    way = data.draw(st.sampled_from(["cut", "more", "flip"]))
    at = data.draw(st.integers(0, len(frame) - 1))
    if way == "cut":
        bad = frame[:at]
    elif way == "more":
        bad = frame + bytes(data.draw(st.integers(1, 40)))
    else:
        bad = frame[:at] + bytes([frame[at] ^ data.draw(st.integers(1, 255))]) + frame[at + 1 :]
    with pytest.raises(MessageRefused):
        decode_reply(bad, layout)


_kept: list[Any] = []


def _cached() -> Any:
    if not _kept:
        _kept.append(in_the_middle(problems.simplex()))
    return _kept[0]


class Poison(ThreadTransport):
    """Changes what one cohort sends, from some request on."""

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        for c, data in super().exchange(frames, deadline):
            address, reply = decode_reply(data, self.layout)
            if c == 1 and self.number > 30 and isinstance(reply, Upload):
                data = encode(Upload(reply.h, reply.gram, reply.b * 1e6 + 1e6), address)
            yield c, data


def test_exclusion_goes_on_without_the_cohort_and_says_so() -> None:
    """After the exclusion everything of its agents is withdrawn: the Gram matrices are those of
    the other agents alone."""
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)

    def make(refused: Any) -> Any:
        def poison(plan: Any) -> Poison:
            run = run_id(plan.parameters, plan.seed)
            retry = RetryPolicy(30.0, 2, refused=refused)
            return Poison(plan.parameters, endpoint_factories(plan, 2, threads=1), run, retry)

        return poison

    with refused(Refusal, "impossible-message", "agent 2, round ", ", step "):
        learner.learn(problems.simplex().envs, 80, 1, transport=make("refuse"), progress=False)
    session = learner.prepare(problems.simplex().envs, 80, 1, transport=make("exclude"))
    drive(session, [])
    noted = [note for record in session.records for note in record.notes]
    assert len(noted) == 1
    assert "agents 2 to 3 excluded" in noted[0]
    traces = session.player.server.gram.trace(axis1=1, axis2=2)
    others = session.player.transport.guard.gram[:, :2].sum(axis=1)  # type: ignore[attr-defined]
    diagonal = np.cumsum([0, *range(session.plan.layout.dim, 1, -1)])
    assert np.allclose(traces - 0.5 * session.plan.layout.dim, others[:, diagonal].sum(axis=1))
    assert not session.player.transport.guard.gram[:, 2:].any()  # type: ignore[attr-defined]

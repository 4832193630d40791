"""What an endpoint does not do, whoever asks: nothing out of order, nothing that was not agreed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import DamagedFile, TransportError
from fedlsvi.protocol.messages import Explore, Keep, Model, Request, Start, Stop
from fedlsvi.remote.codec import Address, Failure, decode_reply, encode, run_id
from fedlsvi.remote.endpoint_factory import EndpointFactory, endpoint_factories
from fedlsvi.remote.journal import Journal

LEARNER = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)
T = 60


def made(folder: Path | None, share: int = 0, seed: int = 1) -> EndpointFactory:
    """The factory of one of two endpoints."""
    plan = LEARNER.prepare(problems.simplex().envs, T, seed).plan
    return endpoint_factories(plan, 2, folder, durable=False, threads=1)[share]


class Server:
    """Speaks to one endpoint; a request that is refused does not count."""

    def __init__(self, factory: EndpointFactory) -> None:
        self.factory, self.endpoint = factory, factory()
        self.epoch, self.number, self.round = 5, 0, 1

    def frame(self, message: Request, first: int | None = None) -> bytes:
        lo, p = self.factory.lo, self.factory.plan
        run = run_id(p.parameters, p.seed)
        turn, k = (self.epoch, self.number + 1), self.round
        if isinstance(message, Start):
            turn, k = (self.epoch + 1, 1) if self.number else turn, 2 if message.t == 4 else 1
        return encode(message, Address(run, *turn, k, lo if first is None else first, 2))

    def ask(self, message: Request) -> bytes:
        """The reply, and on to the next turn if it is one."""
        reply: bytes = self.endpoint.handle(self.frame(message))
        address, said = decode_reply(reply, self.endpoint.layout)
        if not isinstance(said, Failure):
            self.epoch, self.number = address.epoch, address.number
            last = isinstance(message, Model) and message.h == 1
            self.round = address.round + last
        return reply

    def refused(self, message: Request) -> str:
        """The kind of error that a request ends in; "" where it was answered."""
        _, said = decode_reply(self.ask(message), self.endpoint.layout)
        return said.name if isinstance(said, Failure) else ""

    def again(self) -> None:
        """The endpoint's process ends, and another one takes up the journal."""
        self.endpoint.close()
        self.endpoint = self.factory()


def eye(factory: EndpointFactory, scale: float = 1.0) -> np.ndarray:
    d = factory.plan.parameters.dim
    return scale * np.eye(d)[np.triu_indices(d)]


def start(factory: EndpointFactory, **change: Any) -> Start:
    p = factory.plan.parameters
    gram = np.stack([eye(factory, p.lam)] * p.horizon)
    begin = Start(np.zeros((p.horizon, p.dim)), gram, p.gamma, p.beta, p.episodes)
    return replace(begin, **change)


def resumed(factory: EndpointFactory, **change: Any) -> Start:
    """After the first round of the conversation."""
    p = factory.plan.parameters
    w, gram = np.full((p.horizon, p.dim), 0.1), np.stack([eye(factory, 3.0)] * p.horizon)
    return start(factory, **{"w": w, "gram": gram, "t": 4} | change)


def model(factory: EndpointFactory, h: int, w: float = 0.1, scale: float = 3.0) -> Model:
    return Model(h, np.full(factory.plan.parameters.dim, w), eye(factory, scale))


def conversation(factory: EndpointFactory) -> list[Request]:
    """Two rounds, the first of which is kept."""
    steps = range(factory.plan.parameters.horizon, 0, -1)
    models = [model(factory, h) for h in steps]
    one = [start(factory), Explore(3), Explore(2), Stop(4), *models, Keep(4)]
    return [*one, Explore(2), Stop(9), *models]


def unlawful(factory: EndpointFactory, said: list[Request]) -> Iterator[Request]:
    """What may not come after what was said."""
    H, nan, inf = factory.plan.parameters.horizon, np.nan, np.inf
    bad = start(factory, gram=np.stack([eye(factory, -1.0)] * H))
    later = any(isinstance(message, Keep) for message in said)
    yield from (bad, replace(bad, gram=bad.gram * nan), start(factory, w=bad.w + nan))
    yield from (start(factory, w=bad.w + 0.1), start(factory, gram=-bad.gram))
    yield from (start(factory, t=t) for t in (-5, 4, 7, T, T + 1))
    yield from () if later else (resumed(factory),)
    yield from (resumed(factory, w=bad.w), resumed(factory, gram=bad.gram + 2.0))
    yield from (start(factory, gamma=g) for g in (1.0, nan, inf, -8.0, 7.999))
    yield from (start(factory, beta=nan), start(factory, beta=0.0))
    yield from (start(factory, episodes=n) for n in (10**6, T - 1, 0, -1))
    last = said[-1] if said else None
    if isinstance(last, Stop) or (isinstance(last, Model) and last.h > 1):  # a synchronisation
        due = H if isinstance(last, Stop) else last.h - 1
        yield from (model(factory, h) for h in range(1, H + 1) if h != due)
        yield from (model(factory, due, w) for w in (nan, inf))
        # below λ, and above what all episodes can bring
        yield from (model(factory, due, scale=s) for s in (-1.0, 0.0, nan, 0.4, 1e4, 1e90))
        yield from (Explore(1), Stop(5), Stop(T), Keep(4), Keep(9))
    else:
        yield from (model(factory, h) for h in range(1, H + 1))
        yield from (Explore(n) for n in (-1, T + 1, 10**6))
        yield from (Stop(end) for end in (-1, 4 if later else 0, T + 1, 10**6))
        yield from (Keep(k) for k in (-1, 5, T))
        if last is None or isinstance(last, Explore):
            yield from (Keep(0), Keep(4))
        if last is None:
            yield from (Explore(1), Stop(4))


@pytest.mark.parametrize("at", range(len(conversation(made(None)))))
def test_what_is_out_of_order_is_refused_and_changes_nothing(at: int, tmp_path: Path) -> None:
    """At each position of two rounds: not one byte of the journal changes, and what is asked then
    is answered as if nothing had happened, by this process and by the next."""
    calm, server = Server(made(tmp_path / "calm")), Server(made(tmp_path / "bold"))
    talk = conversation(calm.factory)
    for message in talk[:at]:
        assert server.ask(message) == calm.ask(message)

    def journal() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "bold").rglob("0*")}

    before = journal()
    for message in unlawful(server.factory, talk[:at]):
        assert server.refused(message), message
        assert journal() == before, message
    if at % 2:
        server.again()
    for message in talk[at:]:
        assert server.ask(message) == calm.ask(message)
    server.again()
    assert server.endpoint._reply == calm.endpoint._reply


def test_b_is_told_for_one_value_function_in_a_synchronisation(tmp_path: Path) -> None:
    """The last request may come again and is answered with the bytes that it was answered with;
    under the same number no other model is."""
    server = Server(made(tmp_path))
    H = server.factory.plan.parameters.horizon
    for message in (start(server.factory), Stop(4)):
        server.ask(message)
    asked = server.frame(model(server.factory, H))
    upload = server.ask(model(server.factory, H))
    assert server.endpoint.handle(asked) == upload
    assert server.refused(model(server.factory, H, 0.2)) == "MessageRefused"
    server.number -= 1
    assert server.ask(model(server.factory, H, 0.2)) == upload


def test_before_any_start_there_is_nothing_to_answer(tmp_path: Path) -> None:
    server = Server(made(tmp_path))
    for turn in ((0, 0), (0, 1), (5, 1)):
        server.epoch, server.number = turn[0], turn[1] - 1
        assert server.refused(Explore(3)) == "MessageRefused"
    server.again()
    assert server.refused(start(server.factory)) == ""


def test_requests_for_other_agents_are_refused(tmp_path: Path) -> None:
    server = Server(made(tmp_path))
    reply = server.endpoint.handle(server.frame(start(server.factory), first=2))
    assert decode_reply(reply, server.endpoint.layout)[1] == Failure("MessageRefused")
    assert not (tmp_path / "agents-0-1" / "000000000.log").stat().st_size


def test_an_environment_that_fails_for_long_is_not_the_end(tmp_path: Path) -> None:
    """What cannot be carried out stands in nobody's way: the endpoint starts again, in this process
    and in another."""
    server = Server(made(tmp_path))
    server.ask(start(server.factory))

    def broken(*given: Any) -> None:
        raise OSError("the ward is closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(server.endpoint.cohort.experience), "explore", broken)
        for _ in range(2):
            assert server.refused(Explore(3)) == "OSError"
            assert server.refused(start(server.factory)) == ""
            assert server.refused(Stop(3)) == "OSError"
            server.again()
    assert server.refused(Explore(3)) == ""
    assert server.endpoint.cohort.experience.length == 3


@pytest.mark.parametrize("at", range(8))
def test_a_full_disk_delays_and_changes_nothing(at: int, tmp_path: Path) -> None:
    """The request comes again when there is room."""
    calm, server = Server(made(tmp_path / "calm")), Server(made(tmp_path / "full"))

    def full(self: Journal, frame: bytes) -> None:
        raise OSError(28, "No space left on device")

    for i, message in enumerate(conversation(calm.factory)):
        if i == at:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Journal, "append", full)
                assert server.refused(message) == "OSError"
        assert server.ask(message) == calm.ask(message)


def test_a_later_server_needs_no_journal_that_can_be_read(tmp_path: Path) -> None:
    """An error, and the requests before it are damaged: whoever goes on is told, and who starts at
    a snapshot is answered; an earlier server is not."""
    server = Server(made(tmp_path))
    for message in conversation(server.factory)[:-2]:
        server.ask(message)
    server.endpoint.cohort.experience.summarise = None  # type: ignore[assignment,method-assign]
    due = conversation(server.factory)[-2]
    assert server.refused(due) == "TypeError"
    log = tmp_path / "agents-0-1" / "000000004.log"
    log.write_bytes(b"x" + log.read_bytes()[1:])
    for _ in range(2):
        assert server.refused(due) == "DamagedFile"
    server.epoch -= 1
    assert server.refused(resumed(server.factory)) == "MessageRefused"
    server.epoch += 1
    assert server.refused(resumed(server.factory)) == ""
    assert server.refused(Stop(9)) == ""


def test_a_snapshot_that_was_sealed_before_a_kill_can_be_made_again(tmp_path: Path) -> None:
    """Killed before the answer to `Keep` left. The requests before the snapshot end with it: where
    the snapshot is found damaged later, they and those since lead to the same agents."""
    server, keep = Server(made(tmp_path)), Journal.keep
    *talk, last = conversation(server.factory)[:8]
    for message in talk:
        server.ask(message)

    def killed(self: Journal, snapshot: Any) -> None:
        keep(self, snapshot)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            server.ask(last)
    server.again()
    server.ask(last)
    reply = server.ask(Explore(2))
    (tmp_path / "agents-0-1" / "000000004.json").write_bytes(b"damaged")
    server.again()
    assert server.endpoint._reply == reply
    assert server.endpoint.cohort.experience.t == 4


def test_a_station_without_a_journal_cannot_go_back() -> None:
    server = Server(made(None))
    for message in conversation(server.factory):
        server.ask(message)
    assert server.refused(start(server.factory, t=4)) == "TransportError"
    assert server.refused(start(server.factory)) == ""


def test_a_journal_whose_start_is_of_another_episode_is_refused(tmp_path: Path) -> None:
    """After the snapshot of episode 4 come the requests of a server that began at 0."""
    server = Server(made(tmp_path))
    for message in conversation(server.factory)[:8]:
        server.ask(message)
    server.endpoint.close()
    journal = Journal(tmp_path / "agents-0-1", durable=False)
    journal.back_to(4)
    journal.append(server.frame(start(server.factory)))
    journal.close()
    with refused(DamagedFile, "journal-gap", "episode 4", "episode 0"):
        server.factory()


@pytest.mark.parametrize("asked", [2, 8, -1])
def test_journals_that_were_swapped_are_refused(asked: int, tmp_path: Path) -> None:
    """With requests alone, with a snapshot alone, or with both. Who was refused has let go of the
    folder: put back, the journals are taken up in the same process."""
    servers = [Server(made(tmp_path, share)) for share in (0, 1)]
    for server in servers:
        for message in conversation(server.factory)[:asked]:
            server.ask(message)
        server.endpoint.close()
    places = [tmp_path / "agents-0-1", tmp_path / "agents-2-3"]

    def swap() -> None:
        for one, other in ((places[0], "x"), (places[1], "agents-0-1"), (tmp_path / "x", "")):
            one.rename(tmp_path / (other or "agents-2-3"))

    def check(share: int, *agents: str, seed: int = 1) -> None:
        """A server resumes, but the endpoint has nothing of its run."""
        endpoint = made(tmp_path, share, seed)()
        with refused(TransportError, "foreign-journal", *agents):
            endpoint._go_back(resumed(made(tmp_path, share, seed)), 2)
        endpoint.close()
        assert endpoint._reply == b""

    swap()
    check(0, "agents 2 to 3", "0 to 1")
    check(1, "agents 0 to 1", "2 to 3")
    swap()
    check(0, seed=2)
    for server in servers:
        taken = server.factory()
        assert taken._reply == server.endpoint._reply
        taken.close()


@pytest.mark.parametrize("asked", [2, 8, -1])
def test_a_new_run_begins_anew_where_another_ones_journal_lies(asked: int, tmp_path: Path) -> None:
    """One folder of journals may serve run after run, and a federation that ended before its first
    checkpoint may be begun with other settings: nobody could go on with what lies there."""
    old = Server(made(tmp_path))
    for message in conversation(old.factory)[:asked]:
        old.ask(message)
    old.endpoint.close()
    fresh, beside = Server(made(tmp_path, seed=2)), Server(made(tmp_path / "empty", seed=2))
    assert fresh.refused(Explore(3)) == "MessageRefused"
    for message in conversation(fresh.factory):
        assert fresh.ask(message) == beside.ask(message)
    fresh.again()
    assert fresh.endpoint._reply == beside.endpoint._reply
    fresh.endpoint.close()
    beside.endpoint.close()

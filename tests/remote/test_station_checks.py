"""What a station does not do, whoever asks: nothing out of order, nothing that was not agreed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.errors import DamagedFile, TransportError
from fedlsvi.protocol.messages import Explore, Keep, Model, Request, Start, Stop
from fedlsvi.remote.codec import Address, Failure, decode_reply, encode
from fedlsvi.remote.endpoint_factory import Maker, makers
from fedlsvi.remote.frame_transport import run_name
from fedlsvi.remote.journal import Journal

LEARNER = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)
T = 60


def made(folder: Path | None, share: int = 0, seed: int = 1) -> Maker:
    """The maker of one of two stations."""
    plan = LEARNER.prepare(problems.simplex().envs, T, seed).plan
    return makers(plan, 2, folder, durable=False, threads=1)[share]


class Server:
    """Speaks to one station; a request that is refused does not count."""

    def __init__(self, maker: Maker) -> None:
        self.maker, self.station = maker, maker()
        self.epoch, self.number = 5, 0

    def frame(self, message: Request, first: int | None = None) -> bytes:
        lo, p = self.maker.lo, self.maker.plan
        run = run_name(p.parameters, p.seed)
        turn = (self.epoch, self.number + 1)
        if isinstance(message, Start) and self.number:
            turn = (self.epoch + 1, 1)
        return encode(message, Address(run, *turn, 1, lo if first is None else first, 2))

    def ask(self, message: Request) -> bytes:
        """The reply, and on to the next turn if it is one."""
        reply: bytes = self.station.handle(self.frame(message))
        address, said = decode_reply(reply, self.station.layout)
        if not isinstance(said, Failure):
            self.epoch, self.number = address.epoch, address.number
        return reply

    def refused(self, message: Request) -> str:
        """The kind of error that a request ends in; "" where it was answered."""
        _, said = decode_reply(self.ask(message), self.station.layout)
        return said.name if isinstance(said, Failure) else ""

    def again(self) -> None:
        """The station's process ends, and another one takes up the journal."""
        self.station.close()
        self.station = self.maker()


def eye(maker: Maker, scale: float = 1.0) -> np.ndarray:
    d = maker.plan.parameters.dim
    return scale * np.eye(d)[np.triu_indices(d)]


def start(maker: Maker, **change: Any) -> Start:
    p = maker.plan.parameters
    gram = np.stack([eye(maker)] * p.horizon)
    begin = Start(np.zeros((p.horizon, p.dim)), gram, p.gamma, p.beta, p.episodes)
    return replace(begin, **change)


def model(maker: Maker, h: int, w: float = 0.1, scale: float = 3.0) -> Model:
    return Model(h, np.full(maker.plan.parameters.dim, w), eye(maker, scale))


def conversation(maker: Maker) -> list[Request]:
    """Two rounds, the first of which is kept."""
    steps = range(maker.plan.parameters.horizon, 0, -1)
    models = [model(maker, h) for h in steps]
    one = [start(maker), Explore(3), Explore(2), Stop(4), *models, Keep(4)]
    return [*one, Explore(2), Stop(9), *models]


def unlawful(maker: Maker, said: list[Request]) -> Iterator[Request]:
    """What may not come after what was said."""
    H, nan, inf = maker.plan.parameters.horizon, np.nan, np.inf
    bad = start(maker, gram=np.stack([eye(maker, -1.0)] * H))
    later = any(isinstance(message, Keep) for message in said)
    yield from (bad, replace(bad, gram=bad.gram * nan), start(maker, w=bad.w + nan))
    yield from (start(maker, t=t) for t in (-5, 7, T, T + 1, *(() if later else (4,))))
    yield from (start(maker, gamma=g) for g in (1.0, nan, inf, -8.0, 7.999))
    yield from (start(maker, beta=nan), start(maker, beta=0.0))
    yield from (start(maker, episodes=n) for n in (10**6, T - 1, 0, -1))
    last = said[-1] if said else None
    if isinstance(last, Stop) or (isinstance(last, Model) and last.h > 1):  # a synchronisation
        due = H if isinstance(last, Stop) else last.h - 1
        yield from (model(maker, h) for h in range(1, H + 1) if h != due)
        yield from (model(maker, due, w) for w in (nan, inf))
        yield from (model(maker, due, scale=s) for s in (-1.0, 0.0, nan))
        yield from (Explore(1), Stop(5), Stop(T), Keep(4), Keep(9))
    else:
        yield from (model(maker, h) for h in range(1, H + 1))
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
    talk = conversation(calm.maker)
    for message in talk[:at]:
        assert server.ask(message) == calm.ask(message)

    def journal() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "bold").rglob("0*")}

    before = journal()
    for message in unlawful(server.maker, talk[:at]):
        assert server.refused(message), message
        assert journal() == before, message
    if at % 2:
        server.again()
    for message in talk[at:]:
        assert server.ask(message) == calm.ask(message)
    server.again()
    assert server.station._reply == calm.station._reply


def test_b_is_told_for_one_value_function_in_a_synchronisation(tmp_path: Path) -> None:
    """The last request may come again and is answered with the bytes that it was answered with;
    under the same number no other model is."""
    server = Server(made(tmp_path))
    H = server.maker.plan.parameters.horizon
    for message in (start(server.maker), Stop(4)):
        server.ask(message)
    asked = server.frame(model(server.maker, H))
    upload = server.ask(model(server.maker, H))
    assert server.station.handle(asked) == upload
    assert server.refused(model(server.maker, H, 0.2)) == "MessageRefused"
    server.number -= 1
    assert server.ask(model(server.maker, H, 0.2)) == upload


def test_before_any_start_there_is_nothing_to_answer(tmp_path: Path) -> None:
    server = Server(made(tmp_path))
    for turn in ((0, 0), (0, 1), (5, 1)):
        server.epoch, server.number = turn[0], turn[1] - 1
        assert server.refused(Explore(3)) == "MessageRefused"
    server.again()
    assert server.refused(start(server.maker)) == ""


def test_requests_for_other_agents_are_refused(tmp_path: Path) -> None:
    server = Server(made(tmp_path))
    reply = server.station.handle(server.frame(start(server.maker), first=2))
    assert decode_reply(reply, server.station.layout)[1] == Failure("MessageRefused")
    assert not (tmp_path / "agents-0-1" / "000000000.log").stat().st_size


def test_an_environment_that_fails_for_long_is_not_the_end(tmp_path: Path) -> None:
    """What cannot be carried out stands in nobody's way: the station starts again, in this process
    and in another."""
    server = Server(made(tmp_path))
    server.ask(start(server.maker))

    def broken(*given: Any) -> None:
        raise OSError("the ward is closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(server.station.cohort.experience), "explore", broken)
        for _ in range(2):
            assert server.refused(Explore(3)) == "OSError"
            assert server.refused(start(server.maker)) == ""
            assert server.refused(Stop(3)) == "OSError"
            server.again()
    assert server.refused(Explore(3)) == ""
    assert server.station.cohort.experience.length == 3


@pytest.mark.parametrize("at", range(8))
def test_a_full_disk_delays_and_changes_nothing(at: int, tmp_path: Path) -> None:
    """The request comes again when there is room."""
    calm, server = Server(made(tmp_path / "calm")), Server(made(tmp_path / "full"))

    def full(self: Journal, frame: bytes) -> None:
        raise OSError(28, "No space left on device")

    for i, message in enumerate(conversation(calm.maker)):
        if i == at:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Journal, "append", full)
                assert server.refused(message) == "OSError"
        assert server.ask(message) == calm.ask(message)


def test_a_later_server_needs_no_journal_that_can_be_read(tmp_path: Path) -> None:
    """An error, and the requests before it are damaged: whoever goes on is told, and who starts at
    a snapshot is answered; an earlier server is not."""
    server = Server(made(tmp_path))
    for message in conversation(server.maker)[:-2]:
        server.ask(message)
    server.station.cohort.experience.summarise = None  # type: ignore[assignment,method-assign]
    due = conversation(server.maker)[-2]
    assert server.refused(due) == "TypeError"
    log = tmp_path / "agents-0-1" / "000000004.log"
    log.write_bytes(b"x" + log.read_bytes()[1:])
    for _ in range(2):
        assert server.refused(due) == "DamagedFile"
    server.epoch -= 1
    assert server.refused(start(server.maker, t=4)) == "MessageRefused"
    server.epoch += 1
    assert server.refused(start(server.maker, t=4)) == ""
    assert server.refused(Stop(9)) == ""


def test_a_snapshot_that_was_sealed_before_a_kill_can_be_made_again(tmp_path: Path) -> None:
    """Killed before the answer to `Keep` left. The requests before the snapshot end with it: where
    the snapshot is found damaged later, they and those since lead to the same agents."""
    server, keep = Server(made(tmp_path)), Journal.keep
    *talk, last = conversation(server.maker)[:8]
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
    assert server.station._reply == reply
    assert server.station.cohort.experience.t == 4


def test_a_station_without_a_journal_cannot_go_back() -> None:
    server = Server(made(None))
    for message in conversation(server.maker):
        server.ask(message)
    assert server.refused(start(server.maker, t=4)) == "TransportError"
    assert server.refused(start(server.maker)) == ""


def test_a_journal_whose_start_is_of_another_episode_is_refused(tmp_path: Path) -> None:
    """After the snapshot of episode 4 come the requests of a server that began at 0."""
    server = Server(made(tmp_path))
    for message in conversation(server.maker)[:8]:
        server.ask(message)
    server.station.close()
    journal = Journal(tmp_path / "agents-0-1", durable=False)
    journal.back_to(4)
    journal.append(server.frame(start(server.maker)))
    journal.close()
    with pytest.raises(DamagedFile, match=r"snapshot after episode 4 \(a start at episode 0"):
        server.maker()


@pytest.mark.parametrize("asked", [2, 8, -1])
def test_journals_that_were_swapped_are_refused(asked: int, tmp_path: Path) -> None:
    """With requests alone, with a snapshot alone, or with both. Who was refused has let go of the
    folder: put back, the journals are taken up in the same process."""
    servers = [Server(made(tmp_path, share)) for share in (0, 1)]
    for server in servers:
        for message in conversation(server.maker)[:asked]:
            server.ask(message)
        server.station.close()
    places = [tmp_path / "agents-0-1", tmp_path / "agents-2-3"]

    def swap() -> None:
        for one, other in ((places[0], "x"), (places[1], "agents-0-1"), (tmp_path / "x", "")):
            one.rename(tmp_path / (other or "agents-2-3"))

    def refused(share: int, seed: int = 1) -> str:
        """What a station says to a server that goes on, of which it has nothing."""
        station = made(tmp_path, share, seed)()
        with pytest.raises(TransportError) as caught:
            station._go_back(4)
        station.close()
        assert station._reply == b""
        return str(caught.value)

    swap()
    assert re.search(r"of agents 2 to 3 in run .* are 0 to 1 .* back", refused(0))
    assert re.search(r"of agents 0 to 1 in run .* are 2 to 3", refused(1))
    swap()
    assert "put each journal back" in refused(0, seed=2)
    for server in servers:
        taken = server.maker()
        assert taken._reply == server.station._reply
        taken.close()


@pytest.mark.parametrize("asked", [2, 8, -1])
def test_a_new_run_begins_anew_where_another_ones_journal_lies(asked: int, tmp_path: Path) -> None:
    """One folder of journals may serve run after run, and a federation that ended before its first
    checkpoint may be begun with other settings: nobody could go on with what lies there."""
    old = Server(made(tmp_path))
    for message in conversation(old.maker)[:asked]:
        old.ask(message)
    old.station.close()
    fresh, beside = Server(made(tmp_path, seed=2)), Server(made(tmp_path / "empty", seed=2))
    assert fresh.refused(Explore(3)) == "MessageRefused"
    for message in conversation(fresh.maker):
        assert fresh.ask(message) == beside.ask(message)
    fresh.again()
    assert fresh.station._reply == beside.station._reply
    fresh.station.close()
    beside.station.close()

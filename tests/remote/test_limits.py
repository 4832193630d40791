"""What a server reads is bounded by the layout before it is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.errors import InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import Layout, Signal, Start, Upload
from fedlsvi.remote import federation as federation_module
from fedlsvi.remote.codec import (
    HEADER_BYTES,
    MOST_FRAMES,
    Address,
    Failure,
    encode,
    longest_reply,
    longest_request,
)
from fedlsvi.remote.conformance import RUN, Echo, EchoFactory, opened, parameters, uploads
from fedlsvi.remote.federation import Federation, package
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare.transport import Flare
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE


class Flood(Echo):
    """Answers with more than was asked for."""

    more: Callable[[bytes], Any]

    def handle(self, frame: bytes) -> bytes:
        reply = super().handle(frame)
        return self.more(reply) if self.asked > 1 else reply  # type: ignore[no-any-return]


def flooded(more: Callable[[bytes], Any], retry: RetryPolicy) -> ThreadTransport:
    """Three cohorts, the second of which floods from its second answer on."""

    def make(made: Any, policy: RetryPolicy) -> ThreadTransport:
        def flood() -> Flood:
            one = made[1]
            handler = Flood(one.first, one.count, one.layout)
            handler.more = more
            return handler

        return ThreadTransport(parameters(6), [made[0], flood, made[2]], RUN, policy)

    found = opened(make, "none", retry)
    assert isinstance(found, ThreadTransport)
    return found


STALE = encode(None, Address(RUN, 1, 1, 1, 2, 1))


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (lambda reply: STALE * 500_000, "answer-too-long"),
        (lambda reply: reply + STALE * 500_000, "answer-too-long"),
        (lambda reply: STALE * (MOST_FRAMES + 1), "too-many-frames"),
        (lambda reply: bytearray(reply), "answer-not-bytes"),
        (lambda reply: None, "answer-not-bytes"),
    ],
)
def test_an_answer_is_no_longer_than_the_layout_allows(
    more: Callable[[bytes], Any], code: str
) -> None:
    """24 MB of frames that are stale are refused before one is read, and the agent is named."""
    transport = flooded(more, RetryPolicy(PATIENCE, 1))
    with refused(MessageRefused, code, "agent 2"):
        uploads(transport)
    assert transport.ignored == 0
    transport.close()


def test_who_floods_is_excluded_where_that_is_the_policy() -> None:
    transport = flooded(lambda reply: STALE * 1000, RetryPolicy(PATIENCE, 1, refused="exclude"))
    uploads(transport)
    assert list(transport.membership.excluded) == [1]
    transport.close()


def test_a_few_late_frames_are_no_flood() -> None:
    transport = flooded(lambda reply: STALE * (MOST_FRAMES - 1) + reply, RetryPolicy(PATIENCE, 1))
    uploads(transport)
    assert transport.ignored > 0
    transport.close()


@pytest.mark.parametrize("packing", ["packed", "diagonal"])
@pytest.mark.parametrize("dim", [1, 2, 7])
@pytest.mark.parametrize("agents", [1, 5])
def test_the_longest_frames_are_those_of_the_layout(packing: Any, dim: int, agents: int) -> None:
    layout = Layout(agents, 3, dim, packing)
    P = dim if packing == "diagonal" else dim * (dim + 1) // 2
    address = Address(RUN, 1, 1, 1, 0, agents)
    start = Start(np.zeros((3, dim)), np.zeros((3, P)), 1.0, 1.0, 5)
    assert len(encode(start, address)) == longest_request(layout)
    names = np.arange(agents)
    replies = [
        Upload(1, np.zeros((agents, P)), np.zeros((agents, dim))),
        Signal(1, names, names), Failure("ValueError"), None,
    ]  # fmt: skip
    longest = max(len(encode(reply, address)) for reply in replies)
    assert longest == longest_reply(layout, agents)
    assert longest > HEADER_BYTES


def test_a_signal_is_no_longer_than_the_layout_allows(caplog: pytest.LogCaptureFixture) -> None:
    """A site calls the server with one: it is not decoded."""
    factory = EchoFactory(0, 6, Layout(6, 2, 3, "diagonal"))
    proxy = SimpleNamespace(name="south", handler=factory())
    transport = Flare(parameters(6), [proxy], [(0, 6)], RUN)
    many = np.zeros(100_000, np.int64)
    transport.signalled(encode(Signal(1, many, many), Address(RUN, 1, 1, 1, 0, 100_000)), "south")
    assert "1600056 bytes" in caplog.text
    transport.close()


def greeted(said: Any, name: str = "south") -> Any:
    """A site that says this when it is greeted."""
    answer = {"agents": said, "package": package()}
    site = SimpleNamespace(name=name, hello=lambda: answer)
    return type("Site", (), {"__call__": lambda self, **options: site, "name": name})()


@pytest.mark.parametrize("said", [10**7, 10**400, 1001, 0, -1, True, None, 2.0, "3" * 10**6, [1]])
def test_a_site_has_no_more_agents_than_was_agreed(said: Any) -> None:
    """The site is named, nothing is allocated, and what it says is repeated in short."""
    with refused(TransportError, "bad-agents", "south", "1000") as caught:
        flare._greet(greeted(said), 1000, [])
    assert len(str(caught.value)) < 800
    assert flare._greet(greeted(1000), 1000, []) == 1000


def test_how_many_agents_each_site_may_have() -> None:
    federation = Federation("trial", episodes=40, horizon=5, dim=8)
    assert federation.agents_allowed("south") == 1000
    table = federation.table() | {"max_agents": {"south": 3}}
    other = Federation.of(table)
    other.check(2)
    assert (other.agents_allowed("south"), other.agents_allowed("north")) == (3, 0)
    with refused(TransportError, "bad-agents", "north"):
        flare._greet(greeted(1, "north"), other.agents_allowed("north"), [])
    for bad in (0, "3", True, {"south": 0}, {"south": 2.5}):
        with refused(InvalidSetting, "bad-max_agents"):
            Federation.of(federation.table() | {"max_agents": bad}).check(2)


@pytest.mark.parametrize("theirs", ["0.0.1 (0123456789abcdef)", None, "x" * 10**6, 3])
def test_another_package_at_a_site_is_noted(theirs: Any) -> None:
    """The run goes on; what the site says is repeated in short."""
    site = greeted(1)
    site().hello = lambda: {"agents": 1, "package": theirs}
    notes: list[str] = []
    assert flare._greet(site, 1000, notes) == 1
    (note,) = notes
    assert "south" in note
    assert package() in note
    assert len(note) < 300
    notes.clear()
    flare._greet(greeted(1), 1000, notes)
    assert notes == []


def test_the_digest_is_of_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = package()
    shutil.copytree(Path(federation_module.envs.__file__).parents[1], tmp_path / "fedlsvi")
    here = SimpleNamespace(__file__=str(tmp_path / "fedlsvi" / "envs" / "__init__.py"))
    monkeypatch.setattr(federation_module, "envs", here)
    package.cache_clear()
    try:
        assert package() == mine
        with (tmp_path / "fedlsvi" / "core" / "ridge.py").open("a") as file:
            file.write("\n")
        package.cache_clear()
        assert package() != mine
        assert package().split()[0] == mine.split()[0]
    finally:
        package.cache_clear()

"""A site answers the server and nobody else: every kind of call, from every kind of other caller.

The attacks are those of a site that runs a patched package, and those of somebody for whom a hole
in the engine lets calls pass under the server's name."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kits import JOB, SERVER, certificate, engine, first_start, server_kit, site_kit

from expecting import refused
from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.protocol.messages import Explore, Keep, Model, Request, Signal, Start, Stop
from fedlsvi.remote.audit import lines
from fedlsvi.remote.codec import Address, decode_reply, encode, run_id
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare.signing import LONGEST_PROOF, Signer, Verifier
from fedlsvi.remote.flare.transport import JOIN, SIGNALLED, SignedSite
from fedlsvi.remote.site_status import LOG
from fedlsvi.storage import settings_file

ENV = {
    "name": "random-linear", "n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0,
}  # fmt: skip
FEDERATION = Federation("trial", episodes=40, horizon=5, dim=8, settings={"gamma": 9.0})


class South:
    """A site that was joined and has played a round with the real server."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.kit, self.patch = folder / "south", patch
        self.kit.mkdir()
        own = {"agents": 2, "durable": False, "env": ENV}
        (self.kit / "fedlsvi.toml").write_text(settings_file.dump(own))
        self.home = self.kit / "fedlsvi" / "trial"
        self.log = self.home / LOG
        self.signer = Signer(server_kit(folder / "server"), "trial", JOB)
        self.site = flare.Site(FEDERATION.table())
        self.called_by("server")
        self.server = SignedSite(self.site, self.signer, "south")
        self.p = FEDERATION.parameters(4)
        self.number, self.round = 0, 1

    def called_by(self, caller: str) -> None:
        self.patch.setattr(flare, "collab", engine(self.kit, caller=caller))

    def frame(self, message: Request, epoch: int = 5, number: int = 0) -> bytes:
        turn, k = number or self.number + 1, self.round
        if isinstance(message, Start):
            k = 2 if message.t else 1
        return encode(message, Address(run_id(self.p, 0), epoch, turn, k, 2, 2))

    def ask(self, message: Request) -> Any:
        reply = self.server.handle(self.frame(message))
        self.number += 1
        assert self.site._endpoint is not None
        return decode_reply(reply, self.site._endpoint.layout)[1]

    def play(self) -> None:
        assert self.server.hello()["agents"] == 2
        self.server.join(2, 4)
        start = self.start()
        models = [Model(h, start.w[0], start.gram[0]) for h in range(5, 0, -1)]
        for message in (start, Stop(7), *models):
            self.ask(message)
        self.round = 2
        self.ask(Keep(7))

    def start(self, t: int = 0) -> Any:
        return replace(first_start(self.p), t=t)

    def contents(self) -> dict[str, bytes]:
        """All that the site keeps, but for its log."""
        kept = (p for p in sorted(self.home.rglob("*")) if p.is_file() and p != self.log)
        return {str(p): p.read_bytes() for p in kept}


@pytest.fixture
def south(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> South:
    found = South(tmp_path, monkeypatch)
    found.play()
    return found


def calls(south: South) -> dict[str, tuple[str, bytes]]:
    """What the attack of before consisted of, and the rest: method and content of each call."""
    start = south.start()
    later = {"epoch": 9, "number": 1}
    return {
        "hello": ("hello", b""),
        "join": ("join", JOIN.pack(0, 2)),
        "start": ("handle", south.frame(start, **later)),
        "explore": ("handle", south.frame(Explore(1))),
        "stop": ("handle", south.frame(Stop(8))),
        "model": ("handle", south.frame(Model(5, start.w[0], start.gram[0]))),
        "keep": ("handle", south.frame(Keep(7))),
        "go back": ("handle", south.frame(south.start(7), **later)),
        "last again": ("handle", south.frame(Keep(7), number=south.number)),
        "signalled": ("signalled_elsewhere", SIGNALLED.pack(5, south.number + 1, 7)),
        "ended": ("ended", b""),
    }


CALLS = (
    "hello", "join", "start", "explore", "stop", "model", "keep", "go back", "last again",
    "signalled", "ended",
)  # fmt: skip


@dataclass
class Attack:
    """Who the engine says calls, and how the proof is made."""

    code: str
    proof: Callable[[South, str, bytes, Path], Any]
    caller: str = "server"


def signed_by(subject: str = SERVER, **own: Any) -> Callable[[South, str, bytes, Path], bytes]:
    """With the key of this party and a certificate for it."""

    def proof(south: South, purpose: str, content: bytes, folder: Path) -> bytes:
        kit = server_kit(folder / "forged", subject, certificate(subject, **own))
        return Signer(kit, "trial", JOB).sign(purpose, "south", content)

    return proof


def impersonated(south: South, purpose: str, content: bytes, folder: Path) -> bytes:
    """The server's certificate, which everybody has seen, with another site's key."""
    kit = server_kit(folder / "forged", "east", certificate(SERVER))
    return Signer(kit, "trial", JOB).sign(purpose, "south", content)


def with_credential(south: South, purpose: str, content: bytes, folder: Path) -> bytes:
    """What the server vouches for the key of this job, which every site has, with another key."""
    other = Signer(folder / "server", "trial", JOB).sign(purpose, "south", content)
    return south.signer.sign(purpose, "south", content)[:-64] + other[-64:]


def real(**change: str) -> Callable[[South, str, bytes, Path], bytes]:
    """The server's own signature, for something else."""

    def proof(south: South, purpose: str, content: bytes, folder: Path) -> bytes:
        said = {"federation": "trial", "job": JOB, "site": "south"} | change
        signer = Signer(folder / "server", said["federation"], said["job"])
        other = content + b"\0" if "content" in change else content
        return signer.sign(change.get("purpose", purpose), said["site"], other)

    return proof


ATTACKS = {
    "another site, with the server's signature": Attack("caller-not-server", real(), "north"),
    "another site, unsigned": Attack("caller-not-server", lambda *_: b"", "north"),
    "no signature": Attack("unsigned", lambda *_: b""),
    "no bytes": Attack("unsigned", lambda *_: None),
    "nonsense": Attack("unsigned", lambda *_: b"\xff" * 1000),
    "too long": Attack("unsigned", lambda *_: bytes(LONGEST_PROOF + 1)),
    "signed by another site": Attack("not-the-server", signed_by("north")),
    "signed by the administrator": Attack("not-the-server", signed_by(SERVER, role="admin")),
    "the server's certificate, another key": Attack("bad-signature", impersonated),
    "the server's credential, another key": Attack("bad-signature", with_credential),
    "another authority": Attack("foreign-authority", signed_by(authority="elsewhere")),
    "a certificate that a site issued": Attack("foreign-authority", signed_by(authority="north")),
    "a certificate that has ended": Attack("certificate-expired", signed_by(days=(-9, -1))),
    "a certificate that has not begun": Attack("certificate-expired", signed_by(days=(1, 9))),
    "for other content": Attack("bad-signature", real(content="other")),
    "for another purpose": Attack("bad-signature", real(purpose="dance")),
    "for another site": Attack("bad-signature", real(site="north")),
    "for another federation": Attack("bad-signature", real(federation="other")),
    "for another job": Attack("bad-signature", real(job="job-2")),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nobody_else_is_answered(
    attack: str, south: South, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one byte at the site changes but that its log gets a line for each call, and the server
    goes on as if nothing had happened."""
    how, before = ATTACKS[attack], south.contents()
    made = calls(south)
    assert tuple(made) == CALLS
    for name, (purpose, content) in made.items():
        proof = how.proof(south, purpose, content, tmp_path)
        south.called_by(how.caller)
        caplog.clear()
        written = south.log.read_bytes()
        with caplog.at_level(logging.WARNING), refused(flare.SiteTrouble, how.code, purpose):
            getattr(south.site, purpose)(content, proof)
        (line,) = caplog.messages
        assert how.caller in line, name
        assert south.contents() == before, name
        assert south.log.read_bytes().startswith(written), name
        (added,) = map(json.loads, south.log.read_bytes()[len(written) :].splitlines())
        assert (added["code"], added["message"]) == (how.code, line), name
    south.called_by("server")
    assert isinstance(south.ask(Explore(1)), Signal)
    assert south.site._signals._stop is None


@pytest.mark.parametrize("call", CALLS[:2])
def test_a_site_that_nobody_has_greeted_opens_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's call leaves no journal and no line in the log of what left."""
    south = South(tmp_path, monkeypatch)
    south.called_by("north")
    with refused(flare.SiteTrouble, "caller-not-server"):
        getattr(south.site, call)(b"", south.signer.sign(call, "south", b""))
    assert not south.home.exists()
    assert south.site._books is None


def test_the_server_is_answered_and_each_call_is_in_the_log(south: South) -> None:
    kinds = [line["kind"] for line in lines(south.home / "sent.jsonl")]
    assert kinds == ["Hello", "Ack", *["Upload"] * 5, "Ack", "Ack"]


def test_a_signature_that_comes_again_is_answered_with_the_same_bytes(south: South) -> None:
    """It is for the same request: nothing is carried out twice."""
    frame = south.frame(Explore(1))
    proof = south.signer.sign("handle", "south", frame)
    one, two = (south.site.handle(frame, proof) for _ in range(2))
    assert one == two
    assert south.site._endpoint is not None
    assert south.site._endpoint.cohort.experience.length == 1


def test_a_start_of_the_server_itself_destroys_nothing(south: South) -> None:
    """Even a signed one: a later server that begins at 0 leaves the old journal beside the new."""
    kept = {path.name for path in (south.home / "journal").glob("*.safetensors")}
    assert kept
    south.server.handle(south.frame(south.start(), epoch=9, number=1))
    assert {path.name for path in (south.home / "journal.1").glob("*.safetensors")} == kept
    assert not list((south.home / "journal").glob("*.safetensors"))


def test_a_party_without_a_kit_is_told(tmp_path: Path) -> None:
    with refused(InvalidInput, "no-kit", str(tmp_path)):
        Signer(tmp_path, "trial", JOB)
    with refused(InvalidInput, "no-kit", str(tmp_path)):
        Verifier(tmp_path, "trial", JOB, "south")
    (site_kit(tmp_path) / "fed_client.json").write_text("{}")
    with refused(InvalidInput, "no-kit", "servers"):
        Verifier(tmp_path, "trial", JOB, "south")


def test_a_signature_is_of_one_request(tmp_path: Path) -> None:
    """Parts do not run into each other: what is signed says where each ends."""
    signer = Signer(server_kit(tmp_path / "server"), "trial", JOB)
    verifier = Verifier(site_kit(tmp_path / "site"), "trial", JOB, "south")
    proof = signer.sign("handle", "south", b"frame")
    verifier.check("handle", b"frame", proof)
    for purpose, content in (("handl", b"eframe"), ("handle", b"fram"), ("join", b"frame")):
        with refused(MessageRefused, "bad-signature"):
            verifier.check(purpose, content, proof)
    with refused(MessageRefused, "bad-signature"):
        verifier.check("handle", b"frame", proof[:-1] + bytes([proof[-1] ^ 1]))

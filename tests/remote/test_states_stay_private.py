"""States never leave a site; and if one did, the check that says so would notice."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canary import PATTERN, Marked, contents, leaks, listen
from fedlsvi import FedLSVI, load
from fedlsvi.errors import FedLSVIError
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Reply, Signal, Upload
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.federation import Federation, serve
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE


class Observed(Marked):
    """Remembers the last state, for those who let it out."""

    last = 0.0

    def step(self, h: int, x: Any, a: Any, u: Any) -> Any:
        self.last = float(x[0, 0])
        return super().step(h, x, a, u)


Leak = Callable[[Reply, Observed, Audit], Reply]
"""What a site with a leak answers instead, or does beside it."""


def what_left(folder: Path, leak: Leak = lambda reply, world, audit: reply) -> dict[str, bytes]:
    """A federation of one site over frames, and what left the site: its frames, its log of them,
    and all that the server keeps."""
    world, sent = Observed(3, 5), list[bytes]()
    own: Any = {"gamma": 8.0, "beta": 0.3, "policy": "explore"}
    plan = FedLSVI(n_agents=2, **own).prepare(world, 60, 1).plan
    run = run_id(plan.parameters, plan.seed)

    class Listening(Audit):
        def sent(self, frame: bytes) -> None:
            sent.append(frame)
            super().sent(frame)

    audit = Listening(folder / "sent.jsonl", durable=False)

    def cohort() -> Any:
        made = cohort_of(plan, 0, 2)
        receive = made.receive
        made.receive = lambda *given: leak(receive(*given), world, audit)  # type: ignore[method-assign]
        return made

    def make() -> Endpoint:
        journal = Journal(folder / "journal", durable=False)
        return Endpoint(cohort, plan.parameters, run, journal, audit)

    transport = ThreadTransport(plan.parameters, [make], run, RetryPolicy(PATIENCE, 1))
    p = plan.parameters
    federation = Federation("canary", 60, p.horizon, p.dim, 1, settings=own)
    with suppress(FedLSVIError):
        serve(federation.open_run(folder / "server", [(0, 2)], print), transport, [])
    transport.close()
    assert sent
    log = (folder / "sent.jsonl").read_bytes()
    return {"frames": b"".join(sent), "log": log, "server": contents(folder / "server")}


def test_states_never_leave(tmp_path: Path) -> None:
    """Every state of this world carries a recognisable pattern of bytes, which is found in the
    journal, where it belongs, and in nothing that leaves."""
    left = what_left(tmp_path)
    assert leaks(left) == {}
    assert json.loads(left["log"].splitlines()[-1])["n"] > 50
    assert load(tmp_path / "server").played == 60
    assert contents(tmp_path / "journal").count(PATTERN) >= 60 * 2 * 3


def in_an_upload(reply: Reply, world: Observed, audit: Audit) -> Reply:
    """As one of the scalars that an upload holds, where the server cannot find anything wrong."""
    if isinstance(reply, Upload) and reply.b[0, 0] > world.last:
        reply.b.flags.writeable = True
        reply.b[0, 0] = world.last
    return reply


def in_a_signal(reply: Reply, world: Observed, audit: Audit) -> Reply:
    """As the number of an agent."""
    if isinstance(reply, Signal) and reply.t > 0:
        return Signal(reply.t, np.array([world.last]).view("<i8"), reply.steps[:1])
    return reply


def in_the_name_of_an_error(reply: Reply, world: Observed, audit: Audit) -> Reply:
    """A kind of error may be told, and its text may not."""
    if isinstance(reply, Upload):
        raise type(f"NoWayFrom{world.last!r}", (Exception,), {})
    return reply


def in_the_log(reply: Reply, world: Observed, audit: Audit) -> Reply:
    """As a fact about a message, in a file that others may ask to see."""
    if isinstance(reply, Upload):
        audit.note("Upload", state=world.last, scalars=1, round=1, step=1, digest="")
    return reply


@pytest.mark.parametrize(
    ("leak", "found"),
    [
        (in_an_upload, {"frames": {"bytes"}, "server": {"bytes"}}),
        (in_a_signal, {"frames": {"bytes"}}),
        (in_the_name_of_an_error, {"frames": {"decimal"}}),
        (in_the_log, {"log": {"decimal"}}),
    ],
)
def test_a_state_that_leaves_is_noticed(
    leak: Leak, found: dict[str, set[str]], tmp_path: Path
) -> None:
    assert leaks(what_left(tmp_path, leak)) == found


def test_a_state_that_flare_sends_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ear is at FLARE's own connections and hears what it serialised: an array, a number in the
    other order of bytes, a text."""
    from nvflare.fuel.f3.connection import Connection
    from nvflare.fuel.f3.drivers import aio_http_driver  # noqa: F401
    from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
    from nvflare.fuel.utils import fobs

    for kind in Connection.__subclasses__():  # to be as they were when this test has ended
        monkeypatch.setattr(kind, "send_frame", kind.send_frame)
        monkeypatch.setattr(kind, "heard", True, raising=False)
        monkeypatch.delattr(kind, "heard")
    listen(tmp_path / "overheard")
    world = Marked(3, 5)
    state = world.reset(np.full((1, 2), 0.3), np.zeros(1))
    near, far = socket.socketpair()
    connection = SocketConnection(near, None)
    said = {"bytes": [state.tobytes(), float(state[0, 0])], "decimal": [f"from {state[0, 0]!r} on"],
            "hex": [state.tobytes().hex(), float(state[0, 0]).hex()]}  # fmt: skip
    for form, leaking in said.items():
        for value in leaking:
            (tmp_path / "overheard").write_bytes(b"")
            connection.send_frame(fobs.dumps({"loss": value}))
            overheard = (tmp_path / "overheard").read_bytes()
            assert overheard == far.recv(10_000)
            assert leaks({"overheard": overheard}) == {"overheard": {form}}
    connection.close()
    far.close()

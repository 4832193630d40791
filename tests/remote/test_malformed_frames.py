"""Frames whose check is right and whose content is not: refused by the field that is odd."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expecting import refused
from fedlsvi.errors import InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import Layout, Model, Signal, Stop, Upload
from fedlsvi.remote.codec import (
    FAILURE,
    MODEL,
    NAME_BYTES,
    NAMELESS,
    SIGNAL,
    Address,
    Failure,
    decode_reply,
    decode_request,
    encode,
)
from fedlsvi.remote.conformance import opened, parameters, uploads
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.retry_policy import LONGEST_DEADLINE, RetryPolicy
from patience import PATIENCE

ADDRESS = Address(7, 1, 2, 3, 4, 2)
LAYOUT = Layout(6, 2, 3, "diagonal")


def frame(kind: int, step: int, body: bytes) -> bytes:
    """A frame of any content, with the right length and check."""
    header = struct.pack("<4sHHQQIIIII", b"FLS2", kind, step, *ADDRESS, len(body) // 8)
    return header + struct.pack("<I", zlib.crc32(body, zlib.crc32(header))) + body


@pytest.mark.parametrize("step", [0, 3])
def test_a_model_is_of_a_step(step: int) -> None:
    model = Model(1, np.arange(3.0), np.ones(3))
    body = np.concatenate([model.w, model.gram]).tobytes()
    assert frame(MODEL, 1, body) == encode(model, ADDRESS)
    with refused(MessageRefused, "bad-frame-step", f"{step}", "1 to 2"):
        decode_request(frame(MODEL, step, body), LAYOUT)


@pytest.mark.parametrize("words", [0, 2, 4, 7])
def test_a_signal_has_a_counter_and_two_words_for_each_of_its_agents(words: int) -> None:
    """At most as many as the cohort has: here two."""
    for whole in (1, 3, 5):
        _, reply = decode_reply(frame(SIGNAL, 0, bytes(8 * whole)), LAYOUT)
        assert isinstance(reply, Signal)
        assert len(reply.agents) == len(reply.steps) == whole // 2
    with refused(MessageRefused, "bad-frame-length", f"{8 * words} bytes"):
        decode_reply(frame(SIGNAL, 0, bytes(8 * words)), LAYOUT)


@pytest.mark.parametrize("words", [0, 7, 9])
def test_the_name_of_an_error_has_one_length(words: int) -> None:
    body = b"ValueError".ljust(8 * words)[: 8 * words]
    with refused(MessageRefused, "bad-frame-length", f"{8 * words} bytes", "64"):
        decode_reply(frame(FAILURE, 0, body), LAYOUT)


def test_a_long_name_is_cut() -> None:
    sent = encode(Failure("E" * 65), ADDRESS)
    assert len(sent) == len(encode(Failure("E"), ADDRESS))
    assert decode_reply(sent, LAYOUT)[1] == Failure("E" * NAME_BYTES)


@pytest.mark.parametrize(
    "name",
    ["", " ", "two words", "Error\nthis run ends: all is well", "Error\x1b[2J", "\tTab", "Errör",
     "1st", "a.b", "<script>", "Error\0", b"\xff\xfe"],
)  # fmt: skip
def test_what_is_no_name_is_not_repeated(name: str | bytes) -> None:
    said = name if isinstance(name, bytes) else name.encode()
    reply = decode_reply(frame(FAILURE, 0, said.ljust(NAME_BYTES)), LAYOUT)[1]
    assert reply == Failure(NAMELESS)


def test_an_error_cannot_write_into_the_log_of_the_server() -> None:
    """What the run ends with, and what goes into its records."""

    def make(made: Any, retry: RetryPolicy) -> ThreadTransport:
        transport = ThreadTransport(parameters(6), made, 7, retry)
        site: Any = transport.handlers[1]
        answer = site.handle

        def forges(sent: bytes) -> bytes:
            if site.asked == 0:  # Start
                return bytes(answer(sent))
            address, _ = decode_request(sent, transport.layout)
            return encode(Failure("X\nERROR - this run ends: \x1b[2J"), address)

        site.handle = forges
        return transport

    transport = opened(make, "none", RetryPolicy(PATIENCE, 1))
    with refused(TransportError, "agent-failed", "agent 2, round 1", NAMELESS) as e:
        uploads(transport)
    transport.close()
    assert str(e.value).isprintable()


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 10**9, 1.1 * LONGEST_DEADLINE])
def test_a_deadline_that_no_engine_can_count_is_refused(seconds: float) -> None:
    RetryPolicy(LONGEST_DEADLINE)
    with refused(InvalidSetting, "bad-deadline"):
        RetryPolicy(seconds)
    with refused(InvalidSetting, "bad-deadline", "nan"):
        RetryPolicy(float("nan"))


@given(st.data())
def test_damaged_frames_are_refused(data: Any) -> None:
    """Truncated, oversize, any byte changed: never decoded, whatever kind it was."""
    rng = np.random.default_rng(0)
    upload = Upload(2, rng.normal(size=(2, 3)), rng.normal(size=(2, 3)))
    frame = encode(upload, ADDRESS)
    way = data.draw(st.sampled_from(["cut", "more", "flip"]))
    at = data.draw(st.integers(0, len(frame) - 1))
    if way == "cut":
        bad = frame[:at]
    elif way == "more":
        bad = frame + bytes(data.draw(st.integers(1, 40)))
    else:
        bad = frame[:at] + bytes([frame[at] ^ data.draw(st.integers(1, 255))]) + frame[at + 1 :]
    with pytest.raises(MessageRefused):
        decode_reply(bad, LAYOUT)


def test_an_upload_is_of_the_step_that_was_asked_for() -> None:
    def threads(made: Any, retry: RetryPolicy) -> ThreadTransport:
        return ThreadTransport(parameters(6), made, 7, retry)

    transport = opened(threads, "none", RetryPolicy(PATIENCE, 1))
    transport.request = Stop(5)
    transport.guard.sends(transport.request)
    size = transport.layout
    wrong = Upload(size.horizon - 1, np.zeros((2, size.packed)), np.zeros((2, size.dim)))
    with refused(Refusal, "impossible-message", "step is", f"must be {size.horizon}"):
        transport.check_reply(0, wrong)
    transport.close()

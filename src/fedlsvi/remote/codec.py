"""Messages as frames of bytes: a header of 48 bytes, then the message's scalars, 8 bytes each.

    magic  kind  step  run  epoch  number  round  first  agents  words  check | words × 8 bytes

`run` identifies the federation, `epoch` the server process (a resumed server has a later one), and
`number` counts its requests. A reply repeats all three, so that nothing old, duplicate or foreign
passes for an answer. The check (CRC-32) covers header and scalars and detects damage;
authentication is left to the engine. Reals are IEEE doubles, integers two's complement, both
little-endian. Decoding needs the sizes that both sides agreed on, and refuses every frame whose
length is wrong, so arrays that come out have the right shapes; a Gram matrix may be left out.
Nothing in a frame can execute.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple, NoReturn
from zlib import crc32

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.model_fit import FIT
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    KeyRequest,
    Layout,
    MaskedUpload,
    Member,
    Model,
    Models,
    NextStates,
    Reply,
    Request,
    Roster,
    Signal,
    SiteKey,
    Start,
    Stop,
    Upload,
)

MAGIC = b"FLS2"
_HEADER = struct.Struct("<4sHHQQIIIII")
_CHECK = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECK.size

Part = bytes | memoryview

START, EXPLORE, STOP, MODEL, KEEP, SIGNAL, UPLOAD, ACK, FAILURE = range(1, 10)
MASKED, KEY_REQUEST, SITE_KEY, ROSTER, INCREMENTS, MODELS, EXPLOIT, CLOSING = range(10, 18)
KINDS = {
    START: "Start", EXPLORE: "Explore", STOP: "Stop", MODEL: "Model", KEEP: "Keep",
    SIGNAL: "Signal", UPLOAD: "Upload", ACK: "Ack", FAILURE: "Failure",
    MASKED: "MaskedUpload", KEY_REQUEST: "KeyRequest", SITE_KEY: "SiteKey", ROSTER: "Roster",
    INCREMENTS: "Increments", MODELS: "Models", EXPLOIT: "Exploit", CLOSING: "Closing",
}  # fmt: skip

NAME_BYTES = 64
"""Longest name of an error that an agent may report."""

PROOF_BYTES = 8192
"""Longest proof that a public key is a site's: a certificate and a signature."""

_SITE_KEY = struct.Struct("<32sQ")  # public key, bytes of its proof
_MEMBER = struct.Struct("<qq")  # first agent, agents

NAMELESS = "UnnamedError"
"""Stands for an error name that is not an identifier: names appear in logs and on terminals."""


MOST_FRAMES = 8
"""Frames that may arrive in one piece: the reply, and a few that were late."""


class Address(NamedTuple):
    """Which exchange a frame belongs to, and which agents it is for or from."""

    run: int
    epoch: int
    number: int
    round: int
    first: int
    agents: int


def run_id(p: Parameters, seed: int) -> int:
    """The number that the frames of a run carry: the same whenever it is resumed."""
    return int.from_bytes(blake2b(f"{p}|{seed}".encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Failure:
    """An agent could not answer. Only the kind of error travels: its text may quote a state."""

    name: str


def encode(message: Request | Reply | Failure, address: Address) -> bytes:
    """The frame of a message."""
    return encode_all(message, [address])[0]


def encode_all(message: Request | Reply | Failure, addresses: Sequence[Address]) -> list[bytes]:
    """The frames of one message to several cohorts, one for each address."""
    kind, step, *parts = _parts(message)
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    words, frames = memoryview(body).nbytes // 8, []
    for address in addresses:
        header = _HEADER.pack(MAGIC, kind, step, *address, words)
        check = _CHECK.pack(crc32(body, crc32(header)))
        frames.append(b"".join((header, check, body)))
    return frames


def _parts(message: Request | Reply | Failure) -> tuple[int, int, *tuple[Part, ...]]:
    """Kind and step of a message, and its scalars in pieces."""
    match message:
        case Start(w=w, gram=gram, gamma=gamma, beta=beta, episodes=episodes, t=t):
            tail = struct.pack("<ddqq", gamma, beta, episodes, t)
            return START, 0, _reals(w), _reals(gram), tail
        case Explore(limit=limit):
            return EXPLORE, 0, struct.pack("<q", limit)
        case Stop(t=t):
            return STOP, 0, struct.pack("<q", t)
        case Keep(t=t):
            return KEEP, 0, struct.pack("<q", t)
        case Exploit(beta=beta):
            return EXPLOIT, 0, struct.pack("<d", beta)
        case Model(h=h, w=w, gram=gram):
            return MODEL, h, _reals(w), _reals(gram)
        case Signal(t=t, agents=agents, steps=steps):
            return SIGNAL, 0, struct.pack("<q", t), _integers(agents), _integers(steps)
        case Upload(h=h, gram=gram, b=b, following=following):
            if message.fit.size:
                return CLOSING, h, _reals(b), _reals(message.fit)
            parts: list[Part] = [_reals(gram), _reals(b)]
            if not message.every_step:
                return UPLOAD, h, *parts
            parts.append(_integers(np.array([-1 if n.whole else n.cells.size for n in following])))
            parts += [_integers(n.cells) for n in following]
            parts += [_reals(n.values) for n in following]
            return INCREMENTS, h, b"".join(parts)
        case Models(w=w, gram=gram):
            return MODELS, 0, _reals(w), _reals(gram)
        case MaskedUpload(h=h, words=words):
            return MASKED, h, np.ascontiguousarray(words, "<u8").data
        case KeyRequest():
            return KEY_REQUEST, 0, b""
        case SiteKey(public=public, proof=proof):
            return SITE_KEY, 0, _key(public, proof)
        case Roster(members=members):
            keys = (_MEMBER.pack(m.first, m.agents) + _key(m.public, m.proof) for m in members)
            return ROSTER, 0, b"".join(keys)
        case Failure(name=name):
            return FAILURE, 0, name.encode()[:NAME_BYTES].ljust(NAME_BYTES)
    return ACK, 0


def _key(public: bytes, proof: bytes) -> bytes:
    """A public key and its proof, filled up to whole words."""
    return _SITE_KEY.pack(public, len(proof)) + proof + bytes(-len(proof) % 8)


def _reals(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array, "<f8").data


def _integers(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array, "<i8").data


def longest_request(layout: Layout) -> int:
    """Bytes of the longest frame that a server may send: a Start, or the keys of all sites."""
    H, d, P = layout.horizon, layout.weights, layout.packed
    keys = layout.secure * layout.n_agents * (_MEMBER.size + _SITE_KEY.size + PROOF_BYTES)
    return HEADER_BYTES + max(8 * (H * d + layout.matrices * P + 4), keys)


def longest_reply(layout: Layout, agents: int) -> int:
    """Bytes of the longest frame that a cohort of so many agents may send."""
    upload = agents * (layout.upload_words(layout.horizon) + (1 if layout.states else 0))
    key = layout.secure * (_SITE_KEY.size + PROOF_BYTES)
    return HEADER_BYTES + max(8 * upload, 8 * (1 + 2 * agents), NAME_BYTES, key)


def split(data: bytes) -> Iterator[bytes]:
    """The frames that arrived back to back; a damaged rest comes as one piece."""
    at = 0
    while at < len(data):
        size = len(data) - at
        if size >= HEADER_BYTES and data[at : at + 4] == MAGIC:
            words: int = _HEADER.unpack_from(data, at)[-1]
            size = min(size, HEADER_BYTES + 8 * words)
        yield data[at : at + size]
        at += size


def split_answer(data: bytes, most_bytes: int) -> list[bytes]:
    """The frames of an answer, unless it is more than any answer: MessageRefused."""
    if not isinstance(data, bytes):
        raise MessageRefused(
            f"an answer must be bytes, got {type(data).__name__}", code="answer-not-bytes"
        )
    if len(data) > most_bytes:
        raise MessageRefused(
            f"an answer of {len(data)} bytes, expected at most {most_bytes}",
            code="answer-too-long",
        )
    frames = list(islice(split(data), MOST_FRAMES + 1))
    if len(frames) > MOST_FRAMES:
        raise MessageRefused(f"more than {MOST_FRAMES} frames in an answer", code="too-many-frames")
    return frames


def peek(frame: bytes) -> tuple[int, int, Address]:
    """Kind, step and address of a frame.

    Raises:
        MessageRefused: Its length, magic, check or kind is wrong.
    """
    if not isinstance(frame, bytes) or len(frame) < HEADER_BYTES:
        _refuse("length", f"{_length(frame)} bytes", f"at least {HEADER_BYTES}")
    magic, kind, step, *numbers, words = _HEADER.unpack_from(frame)
    if magic != MAGIC:
        _refuse("magic", repr(magic), repr(MAGIC))
    if len(frame) != HEADER_BYTES + 8 * words:
        _refuse("length", f"{len(frame)} bytes", f"{HEADER_BYTES + 8 * words}")
    check = frame[_HEADER.size : HEADER_BYTES]
    found = crc32(memoryview(frame)[HEADER_BYTES:], crc32(frame[: _HEADER.size]))
    if _CHECK.pack(found) != check:
        _refuse("check", check.hex(), "the CRC-32 of the message")
    if kind not in KINDS:
        _refuse("kind", str(kind), f"1 to {max(KINDS)}")
    return kind, step, Address(*numbers)


def decode_request(frame: bytes, layout: Layout) -> tuple[Address, Request]:
    """The request in a frame from the server; MessageRefused if there is none."""
    kind, step, address = peek(frame)
    body = memoryview(frame)[HEADER_BYTES:]
    H, d, P = layout.horizon, layout.weights, layout.packed
    match kind:
        case k if k == MODELS:
            G = layout.matrices
            if len(body) == 8 * H * layout.dim:  # w_h alone: the pass after the last round
                d, G = layout.dim, 0
            _expect(body, H * d + G * P)
            return address, Models(_real(body, 0, (H, d)), _real(body, H * d, (G, P)))
        case k if k == START:
            G, size = layout.matrices, H * d + layout.matrices * P
            _expect(body, size + 4)
            w, gram = _real(body, 0, (H, d)), _real(body, H * d, (G, P))
            gamma, beta, episodes, t = struct.unpack_from("<ddqq", body, 8 * size)
            return address, Start(w, gram, gamma, beta, episodes, t)
        case k if k == MODEL:
            if not 1 <= step <= H:
                _refuse("step", str(step), f"1 to {H}")
            P = layout.gram_size(step)
            if len(body) == 8 * layout.dim:
                d, P = layout.dim, 0
            _expect(body, d + P)
            return address, Model(step, _real(body, 0, (d,)), _real(body, d, (P,)))
        case k if k in (EXPLORE, STOP, KEEP):
            _expect(body, 1)
            (number,) = struct.unpack("<q", body)
            types: dict[int, type[Explore] | type[Stop] | type[Keep]]
            types = {EXPLORE: Explore, STOP: Stop, KEEP: Keep}
            return address, types[kind](number)
        case k if k == EXPLOIT:
            _expect(body, 1)
            return address, Exploit(*struct.unpack("<d", body))
        case k if k == KEY_REQUEST:
            _expect(body, 0)
            return address, KeyRequest()
        case k if k == ROSTER:
            return address, Roster(tuple(_members(body)))
    _refuse("kind", KINDS[kind], "a request")


def _members(body: memoryview) -> Iterator[Member]:
    """The sites of a roster."""
    at = 0
    while at < len(body):
        if at + _MEMBER.size > len(body):
            _refuse("length", f"{len(body)} bytes of scalars", "whole keys")
        first, agents = _MEMBER.unpack_from(body, at)
        public, proof, at = _key_at(body, at + _MEMBER.size)
        yield Member(first, agents, public, proof)


def _key_at(body: memoryview, at: int) -> tuple[bytes, bytes, int]:
    """The public key and the proof that begin here, and where they end."""
    begin = at + _SITE_KEY.size
    if begin > len(body):
        _refuse("length", f"{len(body)} bytes of scalars", "whole keys")
    public, size = _SITE_KEY.unpack_from(body, at)
    end = begin + size + -size % 8
    if size > PROOF_BYTES or end > len(body):
        _refuse("length", f"{len(body)} bytes of scalars", "whole keys")
    return public, bytes(body[begin : begin + size]), end


def decode_reply(frame: bytes, layout: Layout) -> tuple[Address, Reply | Failure]:
    """The reply in a frame from a cohort; MessageRefused if there is none."""
    kind, step, address = peek(frame)
    body = memoryview(frame)[HEADER_BYTES:]
    match kind:
        case k if k == ACK:
            _expect(body, 0)
            return address, None
        case k if k == SIGNAL:
            signalling, odd = divmod(len(body) // 8 - 1, 2)
            if odd or not 0 <= signalling <= address.agents:
                _refuse("length", f"{len(body)} bytes", "a counter and two words per agent")
            words = np.frombuffer(body, "<i8").astype(np.int64)
            return address, Signal(int(words[0]), *words[1:].reshape(2, signalling))
        case k if k == UPLOAD and not layout.states:
            m, d, P = address.agents, layout.responses, layout.gram_size(step)
            if len(body) == 8 * m * layout.dim:  # b_h alone: the pass after the last round
                d, P = layout.dim, 0
            _expect(body, m * (P + d))
            return address, Upload(step, _real(body, 0, (m, P)), _real(body, m * P, (m, d)))
        case k if k == CLOSING and not layout.states:
            m, d = address.agents, layout.dim
            _expect(body, m * (d + FIT))
            b, fit = _real(body, 0, (m, d)), _real(body, m * d, (m, FIT))
            return address, Upload(step, np.empty((m, 0)), b, fit=fit)
        case k if k == INCREMENTS and layout.states:
            return address, _every_step(body, step, address.agents, layout)
        case k if k == MASKED:
            if len(body) != 8 * layout.dim:
                _expect(body, layout.upload_words(step))
            return address, MaskedUpload(step, np.frombuffer(body, "<u8"))
        case k if k == SITE_KEY:
            public, proof, end = _key_at(body, 0)
            if end != len(body):
                _refuse("length", f"{len(body)} bytes of scalars", f"{end}")
            return address, SiteKey(public, proof)
        case k if k == FAILURE:
            _expect(body, NAME_BYTES // 8)
            name = bytes(body).decode(errors="replace").rstrip(" ")
            return address, Failure(name if name.isascii() and name.isidentifier() else NAMELESS)
    _refuse("kind", KINDS[kind], "a reply of this run")


def _every_step(body: memoryview, h: int, m: int, layout: Layout) -> Upload:
    """The upload of all steps of m agents; places in N are ascending and inside it."""
    G, d, P = layout.matrices, layout.responses, layout.packed
    at = m * G * (P + d) + m
    if m < 1 or len(body) < 8 * at:
        _refuse("length", f"{len(body)} bytes of scalars", f"at least {8 * at}")
    sizes = np.frombuffer(body, "<i8", m, 8 * (at - m)).astype(np.int64)
    if not -1 <= sizes.min() <= sizes.max() <= layout.cells:
        _refuse("cells", f"{sizes.max()} of them", f"at most {layout.cells}")
    lengths = np.where(sizes < 0, layout.cells, sizes)  # −1: none is left out, and none is listed
    sizes = np.maximum(sizes, 0)
    listed = int(sizes.sum())
    _expect(body, at + listed + int(lengths.sum()))
    cells = np.split(np.frombuffer(body, "<i8", listed, 8 * at), np.cumsum(sizes)[:-1])
    values = np.split(_real(body, at + listed, (int(lengths.sum()),)), np.cumsum(lengths)[:-1])
    for places in cells:
        if places.size and not (places[0] >= 0 and places[-1] < layout.cells
                                and (np.diff(places) > 0).all()):  # fmt: skip
            _refuse("cells", "not ascending", f"places below {layout.cells}")
    following = tuple(NextStates(*pair) for pair in zip(cells, values, strict=True))
    gram, u = _real(body, 0, (m, G, P)), _real(body, m * G * P, (m, G, d))
    return Upload(h, gram, u, following)


def _expect(body: memoryview, words: int) -> None:
    if len(body) != 8 * words:
        _refuse("length", f"{len(body)} bytes of scalars", f"{8 * words}")


def _real(body: memoryview, at: int, shape: tuple[int, ...]) -> np.ndarray:
    words = np.frombuffer(body, "<f8", math.prod(shape), 8 * at)  # read-only, as bytes are
    return words.reshape(shape)


def _length(frame: object) -> int:
    return len(frame) if isinstance(frame, bytes) else 0


def _refuse(field: str, value: str, bound: str) -> NoReturn:
    code = f"bad-frame-{field}"
    raise MessageRefused(f"frame refused: {field} is {value}, expected {bound}", code=code)

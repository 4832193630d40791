"""Frames that somebody altered, most of them with a checksum that is right all the same."""

from __future__ import annotations

import random
import struct
from zlib import crc32

import fedlsvi.errors
from fedlsvi.remote.codec import HEADER_BYTES, KINDS

LAST = 60
"""The last episode of the runs that are disturbed."""

OURS = {name for name in dir(fedlsvi.errors) if name[:1].isupper()}
"""Names of the errors of this package."""

WORDS = [
    *(struct.pack("<q", n) for n in (0, 1, -1, 2, 7, LAST, LAST + 1, 2**31, 2**62, -(2**63))),
    *(struct.pack("<d", x) for x in (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324)),
    *(struct.pack("<d", x) for x in (float("nan"), float("inf"), float("-inf"))),
    bytes(8), b"\xff" * 8,
]  # fmt: skip
"""Numbers that break things."""

FIELDS = ((0, 4), (4, 2), (6, 2), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4))
"""Where the header has magic, kind, step, run, epoch, number, round, first, agents, words."""
KIND, LENGTH = 1, 9


def sealed(frame: bytearray, resize: bool) -> bytes:
    """The frame with its own checksum and, where wanted, its own length."""
    if len(frame) < HEADER_BYTES:
        return bytes(frame)
    if resize:
        struct.pack_into("<I", frame, FIELDS[LENGTH][0], (len(frame) - HEADER_BYTES) // 8)
    head = memoryview(frame)[: HEADER_BYTES - 4]
    body = memoryview(frame)[HEADER_BYTES:]
    check = crc32(body, crc32(head))
    head.release()
    body.release()
    struct.pack_into("<I", frame, HEADER_BYTES - 4, check)
    return bytes(frame)


def mutated(frame: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to three changes: bytes, words, fields of the header, cut, grown or crossed."""
    data, resize = bytearray(frame), True
    for _ in range(rng.choice((1, 1, 2, 3))):
        how = rng.randrange(7)
        at = rng.randrange(len(data)) if data else 0
        if how == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1 and len(data) >= HEADER_BYTES + 8:
            where = HEADER_BYTES + 8 * rng.randrange((len(data) - HEADER_BYTES) // 8)
            data[where : where + 8] = rng.choice(WORDS)
        elif how == 2 and len(data) >= HEADER_BYTES:
            field = rng.randrange(len(FIELDS))
            where, size = FIELDS[field]
            new = rng.choice((rng.choice(WORDS)[:size], rng.randbytes(size)))
            if field == KIND:
                new = struct.pack("<H", rng.randrange(2 + max(KINDS)))
            data[where : where + size] = new
            resize = resize and field != LENGTH
        elif how == 3:
            del data[at:]
        elif how == 4:
            data += rng.choice((b"", b"\0", rng.choice(WORDS) * rng.choice((1, 2, 40)), frame))
        elif how == 5:
            other = rng.choice(others)
            data = data[:HEADER_BYTES] + other[HEADER_BYTES:]
        else:
            data[at:at] = rng.choice(WORDS)
    return sealed(data, resize) if rng.random() < 0.9 else bytes(data)

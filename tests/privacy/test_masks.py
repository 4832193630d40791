"""Masks against the RFCs, and that they cancel."""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256

import numpy as np
import pytest

from expecting import refused
from fedlsvi.errors import MessageRefused
from fedlsvi.privacy.masks import MaskStreams, new_private_key, public_key
from fedlsvi.protocol.messages import Member
from literal_masks import chacha20, hkdf, x25519

RUN = 0xFEED_FACE_CAFE_BEEF
ASKED = sha256(b"what both sites were asked").digest()
WORDS = np.arange(20, dtype=np.uint64) << np.uint64(50)


def sites(n: int = 3, run: int = RUN) -> tuple[list[bytes], list[Member], list[MaskStreams]]:
    """Sites of one agent each."""
    private = [new_private_key() for _ in range(n)]
    members = [Member(i, 1, public_key(key), b"") for i, key in enumerate(private)]
    return private, members, [MaskStreams(k, i, run, members) for i, k in enumerate(private)]


def test_literal_primitives_are_those_of_the_rfcs() -> None:
    """Test vectors: RFC 7748 section 6.1, RFC 8439 section 2.3.2 (its block 1)."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4b1f92c0d5f2a5e6c1b0f0b8b9b1b1")
    base = (9).to_bytes(32, "little")
    assert x25519(alice, base) == public_key(alice)
    key, nonce = bytes(range(32)), bytes.fromhex("000000090000004a00000000")
    assert chacha20(key, nonce, 2)[64:80].hex() == "10f1e7e4d13b5915500fdd1fa32071c4"


def test_masked_words_by_the_rfcs() -> None:
    private, members, streams = sites()
    listed = b"".join(struct.pack("<qq32s", m.first, m.agents, m.public) for m in members)
    label, asked = b"fedlsvi masks of secure sums, 2", bytes(range(32))
    membership = sha256(label + struct.pack("<QQ", RUN, 3) + listed).digest()
    expected = [int(word) for word in WORDS]
    for other, sign in ((0, -1), (2, 1)):  # site 1 subtracts site 0's and adds site 2's
        secret = x25519(private[1], members[other].public)
        info = label + struct.pack("<Qqq", RUN, min(1, other), max(1, other))
        pair = hkdf(secret, membership, info)
        key = hmac.new(pair, asked + struct.pack("<QI", 7, 3) + b"\x01", sha256).digest()
        stream = chacha20(key, bytes(12), 3)
        words = struct.unpack("<20Q", stream[:160])
        expected = [(a + sign * b) % 2**64 for a, b in zip(expected, words, strict=True)]
    assert streams[1].masked(WORDS, 7, 3, asked).tolist() == expected


@pytest.mark.parametrize("n", [3, 4, 7])
def test_masks_cancel_in_the_sum_over_all_sites_only(n: int) -> None:
    _, _, streams = sites(n)
    masked = np.stack([s.masked(WORDS, 1, 1, ASKED) for s in streams])
    assert np.add.reduce(masked, axis=0).tolist() == (np.uint64(n) * WORDS).tolist()
    masked[1] = streams[1].masked(WORDS, 1, 1, sha256(ASKED).digest())  # it was asked otherwise
    assert not (np.add.reduce(masked, axis=0) == np.uint64(n) * WORDS).any()
    masked[1] = streams[1].masked(WORDS, 1, 1, ASKED)
    for i in range(n):
        rest = np.delete(masked, i, axis=0)
        assert not (np.add.reduce(rest, axis=0) == np.uint64(n - 1) * WORDS).any()


def test_every_round_step_run_membership_and_transcript_has_its_own_stream() -> None:
    private, members, streams = sites(4)
    fewer = MaskStreams(private[0], 0, RUN, members[:3])
    other_run = MaskStreams(private[0], 0, RUN + 1, members)
    seen = [
        *(streams[0].masked(WORDS, k, h, ASKED) for k in (1, 2, 2**40) for h in (0, 1, 2)),
        fewer.masked(WORDS, 1, 1, ASKED),
        other_run.masked(WORDS, 1, 1, ASKED),
        streams[0].masked(WORDS, 1, 1, sha256(ASKED).digest()),
    ]
    assert len({words.tobytes() for words in seen}) == len(seen)
    assert len({int(word) for words in seen for word in words}) == len(seen) * len(WORDS)


def test_a_masked_word_is_uniform() -> None:
    """Bits of 20,000 masked zeros: each is set in half of them (5 standard deviations)."""
    _, _, streams = sites()
    words = streams[0].masked(np.zeros(20_000, np.uint64), 1, 1, ASKED)
    share = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    assert np.abs(share - 0.5).max() < 5 * 0.5 / np.sqrt(20_000)


def test_a_key_of_low_order_is_refused() -> None:
    """Its secret would be zero, and known to the server."""
    private, members, _ = sites()
    with refused(MessageRefused, "bad-key", "2"):
        MaskStreams(private[0], 0, RUN, [*members[:2], Member(2, 1, bytes(32), b"")])

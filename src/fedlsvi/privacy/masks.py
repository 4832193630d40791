"""Pairwise masks that cancel in a sum: X25519, HKDF-SHA256 and ChaCha20 of `cryptography`.

Every pair of sites i < j has a secret that nobody else knows: X25519 of i's private key and j's
public one. HKDF makes of it a key that belongs to one run, one membership (all sites with their
keys) and this pair. From that key, HKDF-Expand makes one for what both were asked so far
(`privacy.transcript`), the round and the step, and ChaCha20 makes of it a stream of 64-bit words.
i adds the stream to what it sends, j subtracts it; in the sum over all sites modulo 2^64 it cancels
if they were asked the same. To whoever lacks the pair's secret, a masked word is uniform.

A stream must hide one content only: of two contents under one stream the difference would be open.
Whoever holds a `MaskStreams` sees to that (`remote.masking`).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from fedlsvi.config import FEWEST_SITES
from fedlsvi.errors import InvalidInput, InvalidSetting, MessageRefused
from fedlsvi.protocol.messages import Member

KEY_BYTES = 32
_LABEL = b"fedlsvi masks of secure sums, 2"
_MEMBER = struct.Struct("<qq32s")
_PAIR = struct.Struct("<Qqq")
_STREAM = struct.Struct("<32sQI")  # transcript, round, step
_NONCE = bytes(16)  # ChaCha20's block counter and nonce: every stream has a key of its own


def crypto() -> Any:
    """The primitives of `cryptography`; InvalidInput with what to install if it is missing."""
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise InvalidInput(
            'aggregation="secure" needs the package cryptography: install it with '
            'pip install "fedlsvi[secure]"',
            code="missing-cryptography",
        ) from None
    return _Primitives(hashes, ed25519, x25519, Cipher, algorithms, HKDF)


@dataclass(frozen=True)
class _Primitives:
    hashes: Any
    ed25519: Any
    x25519: Any
    Cipher: Any
    algorithms: Any
    HKDF: Any


def new_private_key() -> bytes:
    """A private key of X25519, from the operating system's entropy."""
    key: bytes = crypto().x25519.X25519PrivateKey.generate().private_bytes_raw()
    return key


def public_key(private: bytes) -> bytes:
    """The public key that belongs to a private one."""
    key = crypto().x25519.X25519PrivateKey.from_private_bytes(private)
    public: bytes = key.public_key().public_bytes_raw()
    return public


def membership_id(run: int, members: Sequence[Member]) -> bytes:
    """(32,) a hash of the run, and of every site's agents and public key, in the order of agents.

    Proofs are not part of it: a site that restarts may sign the same key again.
    """
    listed = b"".join(_MEMBER.pack(m.first, m.agents, m.public) for m in members)
    return sha256(_LABEL + struct.pack("<QQ", run, len(members)) + listed).digest()


class MaskStreams:
    """The masks of one site in one membership.

    Args:
        private: The site's private key.
        own: The number of its first agent.
        run: The run's number.
        members: All sites, this one too, in the order of agents.
    """

    def __init__(self, private: bytes, own: int, run: int, members: Sequence[Member]) -> None:
        made = crypto()
        self._cipher, self._chacha = made.Cipher, made.algorithms.ChaCha20
        self.membership = membership_id(run, members)
        key = made.x25519.X25519PrivateKey.from_private_bytes(private)
        self._keys: list[tuple[bool, bytes]] = []
        for member in members:
            if member.first == own:
                continue
            try:
                secret = key.exchange(made.x25519.X25519PublicKey.from_public_bytes(member.public))
            except ValueError:  # a point of low order: the secret would be known to all
                raise MessageRefused(
                    f"the public key of agents from {member.first} on is not an X25519 key",
                    code="bad-key",
                ) from None
            pair = _PAIR.pack(run, min(own, member.first), max(own, member.first))
            hkdf = made.HKDF(made.hashes.SHA256(), KEY_BYTES, self.membership, _LABEL + pair)
            self._keys.append((own < member.first, hkdf.derive(secret)))

    def masked(self, words: np.ndarray, round_: int, step: int, transcript: bytes) -> np.ndarray:
        """words (n,) plus the streams of later sites minus those of earlier ones, modulo 2^64.

        Args:
            words: uint64.
            round_: The round.
            step: The step of the synchronisation.
            transcript: (32,) the digest of what this site was asked.
        """
        total, label = words.copy(), _STREAM.pack(transcript, round_, step)
        zeros, stream = bytes(8 * words.size), np.empty(words.size, "<u8")
        room, info = stream.view(np.uint8).data, label + b"\x01"
        for adds, key in self._keys:
            own = hmac.digest(key, info, "sha256")  # HKDF-Expand, RFC 5869
            self._cipher(self._chacha(own, _NONCE), None).encryptor().update_into(zeros, room)
            if adds:
                total += stream
            else:
                total -= stream
        return total


def check_sites(count: int) -> None:
    """Refuse fewer sites than secure sums need."""
    if count < FEWEST_SITES:
        raise InvalidSetting(
            f'aggregation="secure" needs at least {FEWEST_SITES} sites, but there are {count}: '
            f"give cohorts={FEWEST_SITES} or more, or more sites",
            code="too-few-sites",
        )

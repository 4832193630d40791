"""X25519, HKDF-SHA256 and ChaCha20 as RFC 7748, 5869 and 8439 write them, one number at a time."""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256

P = 2**255 - 19


def x25519(scalar: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5: the Montgomery ladder."""
    k = bytearray(scalar)
    k[0] &= 248
    k[31] = (k[31] & 127) | 64
    n, u = int.from_bytes(k, "little"), int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = (n >> t) & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 with 32 bytes of output."""
    extracted = hmac.new(salt, secret, sha256).digest()
    return hmac.new(extracted, info + b"\x01", sha256).digest()


def chacha20(key: bytes, nonce: bytes, blocks: int) -> bytes:
    """RFC 8439, section 2.3: the key stream from block 0 on."""
    mask, stream = 2**32 - 1, b""
    for counter in range(blocks):
        start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter,
                 *struct.unpack("<3I", nonce)]  # fmt: skip
        x = list(start)

        def quarter(a: int, b: int, c: int, d: int, x: list[int] = x) -> None:
            for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[one] = (x[one] + x[two]) & mask
                word = x[three] ^ x[one]
                x[three] = ((word << turn) | (word >> (32 - turn))) & mask

        for _ in range(10):
            for i in range(4):
                quarter(i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        stream += struct.pack("<16I", *((a + b) & mask for a, b in zip(x, start, strict=True)))
    return stream

"""Model files that somebody altered and sealed again: an error of this package, or a policy that
acts. All 20,000 where CI is set."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from fedlsvi.errors import FedLSVIError
from fedlsvi.policy import Policy
from fedlsvi.storage import files
from repeats import repeats

FILES = repeats(200, 10_000)
"""Of each kind."""

TOKENS = [
    b"F64", b"F32", b"F16", b"BF16", b"I32", b"I64", b"U8", b"BOOL", b"X99", b"-1", b"0", b"2",
    b"4294967296", b"18446744073709551615", b"9" * 400, b"1e9", b"null", b"[]", b"{}", b'"', b"\\",
    b"]", b"}", b",", b"\xff", b"actions", b"w", b"__metadata__", b"[" * 2000,
]  # fmt: skip
NUMBERS = [struct.pack("<d", x) for x in (0.0, np.nan, np.inf, -1e308)]
NUMBERS += [struct.pack("<q", n) for n in (-1, 2**31, -(2**63))]


def saved(kind: str, folder: Path) -> Any:
    """A policy's folder; returns a state to act in."""
    env: Any = RandomLinearMDP(6, 3, 4, horizon=3, seed=1)
    features = None if kind == "table" else "rbf"
    if kind == "linear":
        env = ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=1)
    learner = FedLSVI(n_agents=1, gamma=4.0, beta=0.5, lam=1.0)
    run = learner.learn(env, 12, progress=False, threads=1, features=features)
    run.policy.save(folder)
    return 0 if kind == "table" else np.full(1, 0.5)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: of the header's text, its length, the numbers or the whole."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        length = len(found)
        (head,) = struct.unpack_from("<Q", found.ljust(8, b"\0"))
        head = min(head, max(length - 8, 0))
        how = rng.randrange(7)
        at = rng.randrange(length) if length else 0
        if how == 0 and length:
            found[at] ^= 1 << rng.randrange(8)
        elif how <= 2 and head:  # text of the header, which keeps its length in half of the cases
            at = 8 + rng.randrange(head)
            token = rng.choice(TOKENS)
            over = rng.choice((0, len(token)))
            found[at : at + over] = token
            if how == 1:
                struct.pack_into("<Q", found, 0, head + len(found) - length)
        elif how == 3 and length > 8 + head + 8:
            at = 8 + head + 8 * rng.randrange((length - 8 - head) // 8)
            found[at : at + 8] = rng.choice(NUMBERS)
        elif how == 4:
            del found[at:]
        elif how == 5:
            found += rng.choice((b"\0", bytes(8), data))
        else:
            found[:8] = struct.pack("<Q", rng.choice((0, 1, head + 1, 2**31, 2**63, 2**64 - 1)))
    return bytes(found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["table", "linear"])
def test_mutated_model_files_raise_nothing_foreign(kind: str, tmp_path: Path) -> None:
    state = saved(kind, tmp_path / "policy")
    arrays, head = tmp_path / "policy" / "policy.safetensors", tmp_path / "policy" / "policy.json"
    data, table = arrays.read_bytes(), json.loads(head.read_bytes())
    del table["sha256"]
    rng, ends = random.Random(kind), Counter[str]()
    for number in range(FILES):
        bad = mutated(data, rng)
        arrays.write_bytes(bad)
        try:
            files.read_arrays(arrays)
        except FedLSVIError as error:
            ends[error.code] += 1
            if number % 20:
                continue  # no arrays make no policy; a few are tried all the same
        head.write_bytes(files.sealed(table | {"arrays": files.stamp(bad)}))
        try:
            action = Policy.load(tmp_path / "policy").action(state, 1)
        except FedLSVIError as error:
            ends[error.code] += 1
        else:
            ends["acts"] += 1
            assert 0 <= action < 3
    assert ends["damaged"] > FILES // 3
    assert ends["acts"] > 0

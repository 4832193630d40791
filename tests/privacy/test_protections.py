"""The stack of protections, whatever is in it: the sum is what it was, and nothing leaves bare."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.config import Settings
from fedlsvi.errors import MessageRefused
from fedlsvi.groups import ProblemSize
from fedlsvi.privacy import noise
from fedlsvi.privacy.masks import MaskStreams, new_private_key, public_key
from fedlsvi.privacy.protections import Protections, Stage
from fedlsvi.privacy.sums import FloatSums, sums_of
from fedlsvi.protocol.messages import MaskedUpload, Member, NextStates, Upload
from fedlsvi.protocol.transport import layout

M, H, D, S = 5, 3, 4, 6
CUTS = [(0, 2), (2, 1), (3, 2)]
KINDS = [
    kind for kind in product(("exact", "secure"), (False, True), ("stepwise", "one-trip"))
    if kind[0] == "secure" or kind[1]
]  # fmt: skip
EVERY = pytest.mark.parametrize(("aggregation", "private", "exchange"), KINDS)
AT = Stage(3, 2, bytes(32))


def parameters(aggregation: Any, private: bool, exchange: Any) -> Any:
    privacy = {"epsilon": 2.0, "delta": 1e-6} if private else None
    own = Settings(M, aggregation=aggregation, privacy=privacy, exchange=exchange, rounds=4)
    return own.resolve(ProblemSize(40, H, D, False, states=S))


def uploads(p: Any) -> list[Upload]:
    """Of each party; of step 2, or of all of them, with zeros left out by some agents."""
    rng, size, made = np.random.default_rng(0), layout(p), []
    for _, m in CUTS:
        if not size.states:
            made.append(Upload(2, rng.random((m, size.packed)), rng.random((m, D))))
            continue
        rows = rng.random((m, size.cells)) * (rng.random((m, size.cells)) < 0.3)
        following = tuple(
            NextStates.shorter(np.flatnonzero(row), row[row != 0.0], size.cells) for row in rows
        )
        gram, u = rng.random((m, H, size.packed)), rng.random((m, H, D))
        made.append(Upload(1, gram, u, following))
    return made


def stacks(p: Any, key: bytes | None = bytes(32)) -> list[Protections]:
    made = [Protections(p, layout(p), cut, key if p.privacy else None) for cut in CUTS]
    if p.aggregation == "secure":
        keys = [new_private_key() for _ in CUTS]
        members = [Member(*cut, public_key(k), b"") for cut, k in zip(CUTS, keys, strict=True)]
        for (first, _), k, stack in zip(CUTS, keys, made, strict=True):
            stack.join(MaskStreams(k, first, 7, members), len(CUTS))
    return made


def leaving(parties: list[Protections], sent: list[Upload], at: Stage = AT) -> list[Any]:
    return [
        party.leaving(upload, party.words(upload), at)
        for party, upload in zip(parties, sent, strict=True)
    ]


@EVERY
def test_without_noise_the_sum_is_what_it_was(
    aggregation: str, private: bool, exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = lambda key, label, sigma: np.zeros(sigma.size, np.int64)  # noqa: E731
    monkeypatch.setattr(noise, "discrete_gaussian", nothing)
    monkeypatch.setattr(noise, "randomly_rounded", lambda key, label, c, r: c >> 16)
    p = parameters(aggregation, private, exchange)
    size, sent = layout(p), uploads(p)
    left = leaving(stacks(p), sent)
    assert all(isinstance(part, MaskedUpload) == size.secure for part in left)
    total, plain = sums_of(p, size).total(left), FloatSums(size).total(sent)
    assert total.shape == plain.shape
    np.testing.assert_allclose(total, plain, rtol=0.0, atol=M * 2.0**-p.scale_bits)


@EVERY
def test_a_stage_has_one_answer_and_another_stage_another(
    aggregation: str, private: bool, exchange: str
) -> None:
    p = parameters(aggregation, private, exchange)
    parties, sent = stacks(p), uploads(p)
    first, again = leaving(parties, sent), leaving(parties, sent)
    for here, there in zip(first, again, strict=True):
        assert content(here) == content(there)
    others = (
        [AT._replace(round=4), AT._replace(asked=b"1" * 32)] if p.aggregation == "secure" else []
    )
    others += [AT._replace(release=3)] if private else []
    for at in others:
        for here, there in zip(first, leaving(parties, sent, at), strict=True):
            assert content(here) != content(there)


def content(part: Any) -> bytes:
    if isinstance(part, MaskedUpload):
        return part.words.tobytes()
    return (
        part.gram.tobytes()
        + part.b.tobytes()
        + b"".join(n.values.tobytes() for n in part.following)
    )


@EVERY
def test_nothing_leaves_without_what_was_agreed(
    aggregation: str, private: bool, exchange: str
) -> None:
    """Before the parties are known, and when the secret of the noise is gone."""
    p = parameters(aggregation, private, exchange)
    upload, size = uploads(p)[0], layout(p)
    alone = Protections(p, size, CUTS[0], bytes(32) if private else None)
    if p.aggregation == "secure":
        with refused(MessageRefused, "no-membership"):
            alone.leaving(upload, alone.words(upload), AT)
    if private:
        ended = stacks(p, key=None)[0]
        with refused(MessageRefused, "run-ended"):
            ended.leaving(upload, ended.words(upload), AT)
        for release in (0, 5):
            party = stacks(p)[0]
            with refused(MessageRefused, "budget-spent"):
                party.leaving(upload, party.words(upload), AT._replace(release=release))

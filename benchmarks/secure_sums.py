"""What secure sums cost: the masks of one synchronisation, and the rate of the key streams.

    python -m benchmarks secure_sums

50 sites, d = 100, H = 20: each site adds 49 streams to every upload. The table has the time of one
site (all sites mask at once, each on its own machine), the time in which the server adds and
decodes the uploads, and megabytes of masks a second on one core; the median of five repetitions.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from fedlsvi.core.fixed_point import add, decode, encode
from fedlsvi.experiments.measure import Row
from fedlsvi.privacy.masks import MaskStreams, new_private_key, public_key
from fedlsvi.privacy.transcript import Transcript
from fedlsvi.protocol.messages import Member, Model

SITES, DIM, HORIZON, BITS, REPEATS = 50, 100, 20, 35, 5

EXCHANGE = 0.0356
"""Seconds, as the benchmark `signing` measures it."""


def main() -> list[Row]:
    """The figures."""
    private = [new_private_key() for _ in range(SITES)]
    members = [Member(i, 1, public_key(key), b"") for i, key in enumerate(private)]
    began = perf_counter()
    streams = MaskStreams(private[7], 7, 1, members)
    keys = perf_counter() - began
    size = DIM * (DIM + 1) // 2 + DIM
    rows = np.random.default_rng(0).normal(size=(HORIZON, size))
    site, server, encoding = [], [], []
    for repeat in range(REPEATS):
        began = perf_counter()
        words = [encode(row, BITS, SITES) for row in rows]
        encoding.append(perf_counter() - began)
        began = perf_counter()
        masked = [streams.masked(word, repeat, h, bytes(32)) for h, word in enumerate(words)]
        site.append(perf_counter() - began)
        arrived = np.stack([np.stack(masked)] * SITES)  # (C, H, P + d)
        began = perf_counter()
        for h in range(HORIZON):
            decode(add(arrived[:, h]), BITS)
        server.append(perf_counter() - began)
    transcript, models = Transcript(), [Model(h + 1, r[:DIM], r[DIM:]) for h, r in enumerate(rows)]
    following = []
    for repeat in range(REPEATS):
        began = perf_counter()
        for model in models:
            transcript.follow(model, repeat)
        following.append(perf_counter() - began)
    digest = median(following)
    masks = (SITES - 1) * HORIZON * size * 8 / 1e6
    masking, adding = median(site), median(server)
    return [
        Row(f"masks of one site in a synchronisation, {SITES} sites, d = {DIM}", masks, "MB"),
        Row("keys of one site, once a run", 1e3 * keys, "ms"),
        Row("encoding in fixed point, one synchronisation", 1e3 * median(encoding), "ms"),
        Row("masking, one synchronisation", masking, "s", "below 0.5", masking < 0.5),
        Row("masks on one core", masks / masking, "MB/s", "200 or more", masks / masking >= 200),
        Row(
            "digest of a request, over an exchange with three sites on FLARE",
            100 * digest / HORIZON / EXCHANGE,
            "%",
            "below 1",
            digest / HORIZON < 0.01 * EXCHANGE,
        ),
        Row("adding and decoding at the server", adding, "s", "below 0.5", adding < 0.5),
    ]

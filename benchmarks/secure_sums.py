"""What secure sums cost: the masks of one synchronisation, and the rate of the key streams.

    python -m benchmarks.secure_sums

50 sites, d = 100, H = 20: each site adds 49 streams to every upload. Reported are the time of one
site (all sites mask at once, each on its own machine), the time of the server to add and decode
what arrives, and megabytes of masks a second on one core; the median of five repetitions.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from fedlsvi.core.fixed_point import add, decode, encode
from fedlsvi.protocol.masks import MaskStreams, new_private_key, public_key
from fedlsvi.protocol.messages import Member

SITES, DIM, HORIZON, BITS, REPEATS = 50, 100, 20, 35, 5


def main() -> None:
    """Measure and print."""
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
        masked = [streams.masked(word, repeat, h) for h, word in enumerate(words)]
        site.append(perf_counter() - began)
        arrived = np.stack([np.stack(masked)] * SITES)  # (C, H, P + d)
        began = perf_counter()
        for h in range(HORIZON):
            decode(add(arrived[:, h]), BITS)
        server.append(perf_counter() - began)
    masks = (SITES - 1) * HORIZON * size * 8 / 1e6
    print(f"{SITES} sites, d = {DIM}, H = {HORIZON}: {masks:.0f} MB of masks at each site")
    print(f"keys of one site, once a run     {keys:.3f} s")
    print(f"encoding, one synchronisation    {median(encoding):.4f} s")
    print(
        f"masking, one synchronisation     {median(site):.3f} s = {masks / median(site):.0f} MB/s"
    )
    print(f"adding at the server             {median(server):.3f} s")


if __name__ == "__main__":
    main()

"""Keyed randomness: the draw of (seed, agent, episode, index) is a function of those four alone.

Philox4x32-10 (Salmon et al. 2011), a counter-based generator: ten rounds of multiplications turn a
counter of four 32-bit words and a key of two into four random words. Here

    counter = (j // 2, t, m, stream),   key = (low, high word of the seed),

and the j-th uniform of agent m in episode t takes the first (j even) or last (j odd) two of the
four words as one 64-bit number, whose upper 53 bits make a double in [0, 1). Chunk sizes,
look-ahead that is thrown away, the split of agents into cohorts, transports and restarts therefore
change no trajectory. The 32-bit variant is used because its products fit vector registers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

ENVIRONMENT = 0
"""Stream of the environments' draws; algorithms that randomise use other streams."""


@njit(inline="always")
def philox(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """One block of Philox4x32-10. 32-bit words in 64-bit variables, so that products are whole."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3


@njit(inline="always")
def unit(high, low):  # type: ignore[no-untyped-def]
    """A double in [0, 1) from the upper 53 bits of two 32-bit words."""
    word = (high << np.uint64(32)) | low
    return np.float64(np.int64(word >> np.uint64(11))) * 2.0**-53


@njit(cache=True, nogil=True)
def fill_uniforms(seed, stream, agent, first, n, out):  # type: ignore[no-untyped-def]
    """out[j, e] for e < n: draw j of `agent` in episode first + e. Episodes on the fast axis.

    Kernels give it np.int64(0), not 0: for every number written out it would be compiled again.
    """
    n_draws = out.shape[0]
    k0 = np.uint64(seed) & np.uint64(0xFFFFFFFF)
    k1 = np.uint64(seed) >> np.uint64(32)
    for block in range((n_draws + 1) // 2):
        even = out[2 * block]
        odd = out[min(2 * block + 1, n_draws - 1)]  # the last odd draw may not exist:
        for e in range(n):
            a, b, c, d = philox(
                np.uint64(block), np.uint64(first + e), np.uint64(agent), np.uint64(stream), k0, k1
            )
            odd[e] = unit(c, d)
            even[e] = unit(a, b)  # it is then overwritten here


def uniforms(
    seed: int,
    agents: np.ndarray | list[int] | range,
    first_episode: int,
    n_episodes: int,
    n_draws: int,
    stream: int = ENVIRONMENT,
) -> np.ndarray:
    """Draws 0 … n_draws−1 of each agent in each episode, shape (m, n_episodes, n_draws)."""
    out = np.empty((len(agents), n_draws, n_episodes))
    for i, agent in enumerate(agents):
        fill_uniforms(seed, stream, agent, first_episode, n_episodes, out[i])
    return out.transpose(0, 2, 1)

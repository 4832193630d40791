"""The right-hand sides of the paper's theorems, with the corrections of the proof audit.

Symbols: M agents, T episodes per agent, H steps, d features, p the confidence level, c the
constant c_β that the paper leaves unspecified (see docs/algorithm.md).
"""

from __future__ import annotations

import math

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, packed_size


def beta_homogeneous(d: int, H: int, M: int, T: int, p: float = 0.05, c: float = 1.0) -> float:
    """Theorem 1: β = c·H·d·√log(1 + dMHT/p)."""
    return c * H * d * math.sqrt(math.log1p(d * M * H * T / p))


def misspecification_width(d: int, H: int, M: int, T: int, xi: float) -> float:
    """Theorem 2's addition to β: 2Hξ√(dMT)."""
    return 2.0 * H * xi * math.sqrt(d * M * T)


def beta_theory(
    d: int, H: int, M: int, T: int, xi: float = 0, p: float = 0.05, c: float = 1.0, pooled: int = 0
) -> float:
    """β of Theorem 1 (ξ = 0) or Theorem 2: c·H·d·√log(1 + 2dMHT/p) + 2Hξ√(dMT).

    Agents that learn alone have pooled = 1 in place of M in the last term. M stays in the
    logarithm, since the bound holds for all of them at once.
    """
    if xi == 0.0:
        return beta_homogeneous(d, H, M, T, p, c)
    # the theorem prints both dMHT/p and 2dMHT/p; the larger one is safe
    width = misspecification_width(d, H, pooled or M, T, xi)
    return beta_homogeneous(d, H, M, T, p / 2.0, c) + width


def beta_pessimistic(d: int, H: int, M: int, T: int, p: float = 0.05, c: float = 1.0) -> float:
    """Jin, Yang & Wang (2021), Theorem 4.4: β = c·d·H·√log(2dHK/p), K = MT logged episodes."""
    return c * d * H * math.sqrt(math.log(2.0 * d * H * M * T / p))


def gamma_auto(M: int, d: int, T: int) -> float:
    """γ = max(T/(Md), 1): K flat in T up to a logarithm, regret of the order of Theorem 1."""
    return max(T / (M * d), 1.0)


def _information(d: int, M: int, T: int, lam: float) -> float:
    """log(1 + MT/(λd)), the growth that the elliptical potential allows per step and dimension."""
    return math.log1p(M * T / (lam * d))


def regret_bound(
    d: int, H: int, M: int, T: int, gamma: float, beta: float, lam: float = 1.0, p: float = 0.05
) -> float:
    """Theorem 1 before the constants are merged, for the β in force:

    √(8H³MT log(2/p)) + 2Hβ(√(6dMT·ℓ) + (Md/log 3)(√(γ log γ) + 1/√λ)·ℓ),  ℓ = log(1 + MT/(λd)).

    Written with β, the second term keeps the factor √log(1 + dMHT/p) that the merged display of the
    paper drops. It is a guarantee only when β is at least the theorem's and λ = 1 (Lemma C.5 needs
    λ ≥ 1): FedLSVI(beta="theory") alone has the practical λ, preset="paper" has both.
    """
    info = _information(d, M, T, lam)
    martingale = math.sqrt(8.0 * H**3 * M * T * math.log(2.0 / p))
    potential = math.sqrt(6.0 * d * M * T * info)
    delay = M * d / math.log(3.0) * info
    delay *= math.sqrt(gamma * math.log(gamma)) + 1.0 / math.sqrt(lam)
    return martingale + 2.0 * H * beta * (potential + delay)


def regret_bound_misspecified(
    d: int,
    H: int,
    M: int,
    T: int,
    gamma: float,
    beta: float,
    xi: float,
    lam: float = 1.0,
    p: float = 0.05,
) -> float:
    """Theorem 2: Theorem 1 with the widened β and the level p/2, plus what ξ itself costs.

    The paper's last line collects 2Hβ·√(6dMT·ℓ) at β ⊇ 2Hξ√(dMT) into 4√6·ξMdH²T·√ℓ and adds
    4ξMdH²T·√ℓ for the bias of the targets; the first is in 2Hβ(…) here, the second is added.
    """
    bias = 4.0 * xi * M * d * H**2 * T * math.sqrt(_information(d, M, T, lam))
    return regret_bound(d, H, M, T, gamma, beta, lam, p / 2.0) + bias


def rounds_bound(
    d: int, H: int, M: int, T: int, gamma: float, lam: float = 1.0, cap: float | None = None
) -> float:
    """Theorem 3: K ≤ 1 + 2T/γ + (dH/log 2)·log(1 + MT/(λd)); with a cap c, log min(2, c).

    Consider a round that is not the last. If Δt > γ/2, it is one of fewer than 2T/γ such rounds.
    Otherwise some agent's ratio at some step was at least min(γ/Δt, c) ≥ min(2, c), and det Λ_h,
    which also gets the other agents' data, grew by at least that factor; at the end
    Σ_h log(det Λ_h/λ^d) ≤ dH·log(1 + MT/(λd)).
    """
    factor = math.log(2.0 if cap is None else min(2.0, cap))
    return 1.0 + 2.0 * T / gamma + d * H / factor * _information(d, M, T, lam)


def rounds_bound_anytime(
    d: int, H: int, M: int, T: int, growth: float, lam: float = 1.0, cap: float | None = None
) -> float:
    """The same for γ(t) = max(gt, 1): 2 + 1/g + log(gT)/log(1 + g/2) + (dH/log min(2, c))·ℓ.

    As long as t < 1/g, at most 1/g + 1 rounds begin; a later one longer than γ(t)/2 multiplies
    t by at least 1 + g/2.
    """
    rounds = 1.0 + 1.0 / growth + math.log(max(growth * T, 1.0)) / math.log1p(growth / 2.0)
    return rounds + rounds_bound(d, H, M, T, math.inf, lam, cap)


def rounds_floor(T: int, gamma: float) -> int:
    """K ≥ ⌈T/⌈γ⌉⌉, because a round is never longer than ⌈γ⌉."""
    return math.ceil(T / math.ceil(gamma))


def scalars_model(
    d: int, H: int, packing: Packing, stationary: bool = False, behind: int = 0
) -> int:
    """H(P + d), the scalars of one model; P + Hd where all steps share a Gram matrix. `behind` is
    how many numbers travel behind each w_h or b_h: σ̂_h, or Σy² and n, where the bonus knows the
    noise."""
    return (1 if stationary else H) * packed_size(d, packing) + H * (d + behind)


def scalars_per_round(
    d: int,
    H: int,
    M: int,
    packing: Packing,
    signals: int,
    sites: int | None = None,
    stationary: bool = False,
    noisy: bool = False,
) -> int:
    """(C + M)H(P + d) + M + 2s: uploads and models, the stop signal, and s agents that raised it;
    (2C + M)H more where the bonus knows the noise.

    C is the number of parties that upload: all M agents, or with secure sums the sites.
    """
    uploads = (M if sites is None else sites) * scalars_model(d, H, packing, stationary, 2 * noisy)
    return uploads + M * scalars_model(d, H, packing, stationary, noisy) + M + 2 * signals


def scalars_total(
    d: int,
    H: int,
    M: int,
    packing: Packing,
    rounds: int,
    total_signals: int,
    sites: int | None = None,
    stationary: bool = False,
    noisy: bool = False,
) -> int:
    """M(H(P + d) + 3) + K((C + M)H(P + d) + M) + 2Σs: the whole run, first broadcast included;
    MH + K(2C + M)H more where the bonus knows the noise.

    With secure sums, C sites exchange keys first and upload one sum each; else C = M.
    """
    first = M * (scalars_model(d, H, packing, stationary, noisy) + 3)
    if sites is not None:
        first += scalars_keys(sites)
    each = scalars_per_round(d, H, M, packing, 0, sites, stationary, noisy)
    return first + rounds * each + 2 * total_signals


def scalars_exploit(
    d: int,
    H: int,
    M: int,
    sites: int | None = None,
    one_trip: bool = False,
    fits: bool = False,
) -> int:
    """(C + M)Hd + M: one more backward pass that sends no Gram matrix, and the request for it. In
    one trip the server has the sums: MHd + M. 5MH more where agents say how well the model fits."""
    uploads = 0 if one_trip else M if sites is None else sites
    return (uploads + M) * H * d + M + FIT * M * H * fits


def scalars_one_trip(
    d: int,
    H: int,
    M: int,
    packing: Packing,
    rounds: int,
    total_signals: int,
    following: int,
    sites: int | None = None,
    states: int = 0,
    stationary: bool = False,
    noisy: bool = False,
) -> int:
    """M(H(P + d) + 3) + K(2MH(P + d) + M) + 2Σs + F: one trip for each of K synchronisations.

    F, `following`, are the scalars of N, sparse where that is shorter. With secure sums nothing
    may be left out, and each of C sites uploads H(P + d) + (H−1)dS a round. Where all steps share
    their sums an upload has one Λ, u and N, and a model one Λ. Where the bonus knows the noise, u
    and N have d + 2 rows.
    """
    uploads, tables = M if sites is None else sites, 1 if stationary else H - 1
    sent = scalars_total(d, H, M, packing, rounds, total_signals, sites, stationary, noisy)
    rows = d + 2 * noisy
    if stationary:  # u is sent once, and not a response for every step
        sent -= rounds * uploads * (H - 1) * rows
    return sent + (following if sites is None else rounds * sites * tables * rows * states)


def scalars_keys(sites: int) -> int:
    """4C + 4C²: each of C sites sends a public key of 32 bytes and receives those of all."""
    return 4 * sites + 4 * sites**2


def rounds_paid(
    d: int,
    H: int,
    M: int,
    T: int,
    packing: Packing,
    least: int,
    stationary: bool = False,
    exploit: bool = False,
    noisy: bool = False,
    fits: bool = False,
) -> int:
    """The most rounds whose scalars are no more than the raw data's, but at least `least`.

    With every agent's signal in every round, and three scalars per step of the raw data.
    """
    kind = {"stationary": stationary, "noisy": noisy}
    left = scalars_raw(H, M, T) - scalars_total(d, H, M, packing, 0, 0, **kind)
    left -= scalars_exploit(d, H, M, fits=fits) if exploit else 0
    return max(least, left // scalars_per_round(d, H, M, packing, M, **kind))


def scalars_raw(H: int, M: int, T: int, per_step: int = 3) -> int:
    """What sharing every trajectory costs one way: MTHρ, ρ scalars per step."""
    return M * T * H * per_step

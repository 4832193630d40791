"""LSVI-UCB++: one agent that plays everybody's episodes and weighs samples by their variance.

He, Zhao, Zhou, Gu (2023), "Nearly minimax optimal reinforcement learning for linear Markov decision
processes", ICML 2023. An upper reference for learning in a federation: one agent, MT episodes,
nothing to send; so all agents must have the same MDP. Rewards are known. Regressions weigh a sample
by 1/σ̄², where σ̄² bounds the variance of the next value; Q is the smallest of all optimistic
estimates so far, Q̌ the largest of the pessimistic ones, and both are renewed only when some
det Σ_h has doubled. With u = ‖φ‖_{Σ⁻¹}:

    Q = min{r + φᵀŵ + βu, Q, H},   Q̌ = max{r + φᵀw̌ − β̄u, Q̌, 0},   Σ = λI + Σσ̄⁻²φφᵀ,  λ = 1/H²,
    σ² = V̂ar + E + D + H,   E = min{β̃u, H²} + min{2Hβ̄u, H²},
    D = c_D·min{4d³H²(φᵀ(ŵ − w̌) + 2β̄u), d³H³},   σ̄ = max{σ, √H, 2c_σd³H²√u}.

Checked: regret Õ(d√(H³K)) and rare switching (abstract); Q, Q̌, E, D and the forms of β, β̄, β̃
(restated in later papers and in a third party's code, both read for facts). He et al. print H as
the floor of σ̄; a later paper argues for √H, taken here. From memory:
V̂ar = [φᵀw₂]_[0,H²] − ([φᵀŵ]_[0,H])² with w₂ the weighted regression of V². The paper's constants
make literal weights almost 0, so the practical preset replaces them: with R the value range,
β = β̄ = cR/√H (a bonus of cR/√N at σ̄² = H, as Fed-LSVI's), β̃ = Rβ, c_D = 1/(4d³H) and
c_σ = 1/(2d³H²). It replaces λ, too, by its own over H²: 0.001/H² where the paper has 1/H². The
minimum over all past estimates needs a finite state space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numba import njit

from fedlsvi.algorithms.low_switching import scalars
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.settings import PRACTICAL, SharedSettings
from fedlsvi.algorithms.shared.single_agent import switch_counts
from fedlsvi.checks import number, plural
from fedlsvi.config import Parameters
from fedlsvi.core.statistics import identity, read_only
from fedlsvi.core.value import beats, choose, upper
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.values import TabularValues
from fedlsvi.groups import PRACTICAL_LAM, CommonSettings, ProblemSize
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import Player

__all__ = ["LSVIUCBPlusPlus", "scalars"]


@dataclass(frozen=True)
class PlusSettings(SharedSettings, CommonSettings):
    """Settings of LSVI-UCB++; None takes the preset's number.

    Attributes:
        c: Scale of the three bonuses.
        c_D: Scale of the distance D.
        c_sigma: Scale of the floor of σ̄.
        lam: Ridge λ > 0; None takes the preset's, divided by H².
        confidence: p of the theorem.
    """

    fixed: ClassVar = {"gamma": 1.0}

    c: float | None = None
    c_D: float | None = None
    c_sigma: float | None = None
    lam: float | None = None
    confidence: float = 0.05

    def check(self) -> None:
        """Scales are not negative."""
        super().check()
        for name in ("c", "c_D", "c_sigma"):
            value = getattr(self, name)
            if value is not None:
                number(name, value, 0.0, "leave it out to use the preset's value; 1 is the paper's")

    def resolve(self, problem: ProblemSize) -> Parameters:
        """The numbers in force; β is that of Q."""
        preset = 1.0 if self.preset == "paper" else PRACTICAL_LAM
        lam = preset / problem.horizon**2 if self.lam is None else self.lam
        plain = self.common(beta=0.0, lam=lam).resolve(problem)
        beta = self.radii(plain)[0]
        return self.common(beta=beta, lam=lam).resolve(problem)

    def radii(self, p: Parameters) -> tuple[float, float, float]:
        """β, β̄, β̃ with ℓ = log(dHK/(δλ)), K = MT."""
        H, d = p.horizon, p.dim
        if self.preset == "practical":
            c = self.scale
            top = float(H) if p.value_range is None else min(float(H), p.value_range)
            beta = c * top / math.sqrt(H)
            return beta, beta, top * beta
        log = math.log(d * H * p.n_agents * p.episodes / (p.confidence * p.lam))
        c, root = self.scale, math.sqrt(d * p.lam)
        beta = H * root + math.sqrt(d) * log
        bar = H * root + d**1.5 * H * log
        tilde = H**2 * root + d**1.5 * H**2 * log
        return c * beta, c * bar, c * tilde

    @property
    def scale(self) -> float:
        """c in force."""
        if self.c is not None:
            return float(self.c)
        return 1.0 if self.preset == "paper" else PRACTICAL["lsvi-ucb-pp"]

    def factors(self, p: Parameters) -> tuple[float, float]:
        """4c_Dd³H² and 2c_σd³H²."""
        cube = float(p.dim**3 * p.horizon**2)
        paper = self.preset == "paper"
        c_D, c_sigma = self.c_D, self.c_sigma
        if c_D is None:
            c_D = 1.0 if paper else p.horizon / (4.0 * cube)
        if c_sigma is None:
            c_sigma = 1.0 if paper else 1.0 / (2.0 * cube)
        return 4.0 * c_D * cube, 2.0 * c_sigma * cube


# Σ_h = LLᵀ is kept by its factor, which a new sample changes in O(d²); φ's norm, the regressions at
# φ and the growth of log det Σ_h all follow from L⁻¹φ. With one-hot features Σ_h is its diagonal,
# and `lower` the square roots of its entries.


@njit(cache=True, nogil=True)
def _rank_one(lower, v):  # type: ignore[no-untyped-def]
    """LLᵀ + vvᵀ, in place; v is overwritten."""
    dim = v.size
    for j in range(dim):
        root = np.hypot(lower[j, j], v[j])
        c, s = root / lower[j, j], v[j] / lower[j, j]
        lower[j, j] = root
        for i in range(j + 1, dim):
            lower[i, j] = (lower[i, j] + s * v[i]) / c
            v[i] = c * v[i] - s * lower[i, j]


@njit(cache=True, nogil=True)
def _forward(lower, v, out):  # type: ignore[no-untyped-def]
    """out = L⁻¹v."""
    for i in range(v.size):
        acc = v[i]
        for j in range(i):
            acc -= lower[i, j] * out[j]
        out[i] = acc / lower[i, i]


@njit(cache=True, nogil=True)
def _backward(lower, v, out):  # type: ignore[no-untyped-def]
    """out = L⁻ᵀv."""
    for i in range(v.size - 1, -1, -1):
        acc = v[i]
        for j in range(i + 1, v.size):
            acc -= lower[j, i] * out[j]
        out[i] = acc / lower[i, i]


@njit(inline="always")
def _inverse_variance(at_high, at_low, at_square, u, H, radii, factors):  # type: ignore[no-untyped-def]
    """1/σ̄² from φᵀŵ, φᵀw̌, φᵀw₂ and u = ‖φ‖_{Σ⁻¹}."""
    _, bar, tilde = radii
    factor_d, factor_sigma = factors
    mean = min(max(at_high, 0.0), H)
    variance = max(min(max(at_square, 0.0), H * H) - mean * mean, 0.0)
    error = min(tilde * u, H * H) + min(2.0 * H * bar * u, H * H)
    distance = factor_d * max(at_high - at_low + 2.0 * bar * u, 0.0)
    distance = min(distance, factor_d / 4.0 * H)  # d³H³ with the same scale
    return 1.0 / max(variance + error + distance + H, factor_sigma * factor_sigma * u)


@njit(cache=True, nogil=True)
def absorb(  # type: ignore[no-untyped-def]
    states, actions, phi, index, values, below, radii, factors, gram, lower, sums, grown
):
    """Add episodes (H, n) one after the other until some log det Σ_h has grown by log 2.

    Returns (episodes used, whether that happened); grown[h] is the growth since the last switch.
    """
    horizon, n = actions.shape
    dim, n_states = sums.shape[1:]
    H = float(horizon)
    row, y, s = np.empty(dim), np.empty(dim), np.empty(dim)
    for e in range(n):
        due = False
        for h in range(horizon):
            x, a = states[h, e], actions[h, e]
            high = low = square = 0.0
            if phi.size == 0:
                i = index[x, a]
                entries, roots = gram[h].reshape(-1), lower[h].reshape(-1)
                u2 = 1.0 / entries[i]
                for z in range(n_states):
                    p = sums[h, i, z] * u2
                    v = values[h + 1, z]
                    high += p * v
                    low += p * below[h + 1, z]
                    square += p * v * v
                weight = _inverse_variance(high, low, square, np.sqrt(u2), H, radii, factors)
                entries[i] += weight
                roots[i] = np.sqrt(entries[i])
                if h + 1 < horizon:
                    sums[h, i, states[h + 1, e]] += weight
            else:
                for i in range(dim):
                    row[i] = phi[x, a, i]
                full, factor = gram[h].reshape(dim, dim), lower[h].reshape(dim, dim)
                _forward(factor, row, y)
                _backward(factor, y, s)
                u2 = np.dot(y, y)
                for z in range(n_states):
                    p = 0.0
                    for i in range(dim):
                        p += sums[h, i, z] * s[i]
                    v = values[h + 1, z]
                    high += p * v
                    low += p * below[h + 1, z]
                    square += p * v * v
                weight = _inverse_variance(high, low, square, np.sqrt(u2), H, radii, factors)
                for i in range(dim):
                    for j in range(dim):
                        full[i, j] += weight * row[i] * row[j]
                    if h + 1 < horizon:
                        sums[h, i, states[h + 1, e]] += weight * row[i]
                root = np.sqrt(weight)
                for i in range(dim):
                    row[i] *= root
                _rank_one(factor, row)
            grown[h] += np.log1p(weight * u2)
            if grown[h] >= np.log(2.0):
                due = True
        if due:
            return e + 1, True
    return n, False


@njit(cache=True, nogil=True)
def renew_tables(  # type: ignore[no-untyped-def]
    phi, index, reward, gram, lower, sums, radii, top, score, low, values, below, policy, w
):
    """Q = min{r + φᵀŵ + βu, Q, c_h}, Q̌ = max{r + φᵀw̌ − β̄u, Q̌, 0}, h = H … 1.

    score keeps the estimates before the clip, so that ties at the clip do not decide a policy.
    """
    horizon, n_states, n_actions = reward.shape
    dim = sums.shape[1]
    beta, bar, _ = radii
    b, y = np.empty(dim), np.empty(dim)
    high, under = np.empty(dim), np.empty(dim)
    for h in range(horizon - 1, -1, -1):
        for values_ahead, model in ((values[h + 1], high), (below[h + 1], under)):
            for i in range(dim):
                b[i] = 0.0
                for z in range(n_states):
                    b[i] += sums[h, i, z] * values_ahead[z]
            if phi.size == 0:
                entries = gram[h].reshape(-1)
                for i in range(dim):
                    model[i] = b[i] / entries[i]
            else:
                factor = lower[h].reshape(dim, dim)
                _forward(factor, b, y)
                _backward(factor, y, model)
        for i in range(dim):
            w[h, i] = high[i]
        for x in range(n_states):
            best, above, chosen, least = -np.inf, -np.inf, 0, 0.0
            for a in range(n_actions):
                if phi.size == 0:
                    i = index[x, a]
                    mean, floor, norm2 = high[i], under[i], 1.0 / gram[h].reshape(-1)[i]
                else:
                    row = phi[x, a]
                    _forward(lower[h].reshape(dim, dim), row, y)
                    mean, floor, norm2 = np.dot(row, high), np.dot(row, under), np.dot(y, y)
                r = reward[h, x, a]
                score[h, x, a] = min(score[h, x, a], upper(r + mean, norm2, beta))
                low[h, x, a] = max(low[h, x, a], upper(r + floor, norm2, -bar))
                above = max(above, score[h, x, a])
                if beats(score[h, x, a], best):
                    best, chosen = score[h, x, a], a
                least = max(least, low[h, x, a])
            values[h, x] = min(max(above, 0.0), top[h])
            below[h, x] = least
            policy[h, x] = chosen


class PlusPlusAgent:
    """The agent: weighted sums, both tables, and the policy between two switches."""

    KEPT = ("sums", "lower", "gram", "score", "low", "values", "below", "w")

    def __init__(self, plan: Plan, settings: PlusSettings) -> None:
        p, env = plan.parameters, plan.envs[0]
        assert isinstance(env, FiniteMDP)
        table = empty_values(plan)
        assert isinstance(table, TabularValues)
        self.phi, self.index, self.top = table.phi, table.index, p.ceilings
        H, S, A = p.horizon, env.n_states, env.n_actions
        self.radii, self.factors = settings.radii(p), settings.factors(p)
        self.reward = read_only(np.broadcast_to(env.r, (H, S, A)))
        self.gram = np.stack([identity(p.dim, p.lam, p.packing)] * H)
        self.lower = np.sqrt(self.gram)  # of λI
        self.sums = np.zeros((H, p.dim, S))
        self.score = np.full((H, S, A), np.inf)
        self.low = np.zeros((H, S, A))
        self.values, self.below = np.zeros((H + 1, S)), np.zeros((H + 1, S))
        self.values[:-1] = self.top[:, None]
        self.policy = np.zeros((H, S), np.int32)
        self.w = np.zeros((H, p.dim))
        self._explorer = Explorer(plan, np.array([0]))
        self.k, self._guess, self.budget = 0, 1, p.n_agents * p.episodes

    def play(self) -> tuple[int, int]:
        """Episodes on the frozen policy until a determinant has doubled: how many, and at which h
        it did (0 if the budget came first)."""
        left = self.budget - self.k
        grown, done, due = np.zeros(len(self.gram)), 0, False
        while done < left and not due:
            n = min(left - done, self._guess)
            states, actions, _ = self._explorer.play(self.k + done + 1, n, self.policy)
            bounds = (self.values, self.below, self.radii, self.factors)
            kept = (self.gram, self.lower, self.sums, grown)
            seen = states[0].copy(), actions[0].copy()  # always contiguous: absorb compiles once
            used, due = absorb(*seen, self.phi, self.index, *bounds, *kept)
            done += used
            self._guess = max(1, min(2 * used, 4096))
        self.k += done
        return done, int((grown >= math.log(2.0)).argmax()) + 1 if due else 0

    def renew(self) -> None:
        """Both tables from all samples, backward through the steps."""
        problem = (self.phi, self.index, self.reward)
        known = (self.gram, self.lower, self.sums, self.radii, self.top)
        tables = (self.score, self.low, self.values, self.below, self.policy, self.w)
        renew_tables(*problem, *known, *tables)

    def state(self) -> dict[str, np.ndarray]:
        """Everything but what follows from it."""
        return {name: getattr(self, name) for name in self.KEPT} | {"k": np.array([self.k])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        for name in self.KEPT:
            getattr(self, name)[:] = state[name]
        self.k = int(state["k"][0])
        choose(self.score.reshape(self.policy.size, -1), self.policy.reshape(-1))


class PlusPlay(Play):
    """Phases between two switches; M of the agent's episodes make one of the run."""

    algorithm = "lsvi-ucb-pp"

    def __init__(self, plan: Plan, settings: PlusSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agent, self.meter = PlusPlusAgent(plan, settings), self.regret_meter.group([0])

    def parties(self) -> dict[str, Any]:
        return {"agent0": self.agent}

    def advance(self) -> Segment:
        agent, M = self.agent, self.plan.parameters.n_agents
        fired = []
        while agent.k // M <= self.t:
            first, policy = agent.k + 1, agent.policy.copy()
            n, step = agent.play()
            self.meter.record_at(first, n, policy, np.arange(first - 1, first - 1 + n) // M)
            if step > 0:
                fired.append((0, step))
                began = perf_counter()
                agent.renew()
                self.planning += perf_counter() - began
        # nobody follows a policy renewed after the last episode
        idle = agent.k == agent.budget and step > 0
        self.counts = switch_counts([self.k + len(fired) - idle])
        return Segment(agent.k // M, len(fired), fired)

    def followed(self) -> np.ndarray:
        return self.agent.policy

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        """ŵ of the last switch, which regresses next values only, and Σ. The policy does not follow
        from them: it knows the rewards, and the minimum over all models of the past."""
        assert isinstance(self.values, TabularValues)
        self.values.policy[:] = self.agent.policy
        return self.agent.w, self.agent.gram


def check_same_law(plan: Plan) -> None:
    """One agent stands for all only where all meet the same MDP, from the same initial law."""
    seen = {
        (env.fingerprint, env.initial_law(m).tobytes())
        for m, env in enumerate(plan.envs)
        if isinstance(env, FiniteMDP)
    }
    if len(seen) > 1:
        raise InvalidEnvironment(
            f"lsvi-ucb-pp plays all episodes with one agent, but the environment has {len(seen)} "
            f"different laws across {plural(len(plan.envs), 'agent')}: give one environment with "
            "one initial distribution, or choose another algorithm",
            code="different-environments",
        )


class LSVIUCBPlusPlus(Comparator):
    """One agent with the n_agents·episodes episodes of a federation, and known rewards."""

    name = "lsvi-ucb-pp"
    settings_type = PlusSettings
    play_type = PlusPlay
    needs_table = True

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        check_same_law(plan)
        return super().play(plan, cohorts, keep_models)

    sums_of = "server"

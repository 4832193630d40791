"""Which bonus knows the noise, and is it better than a constant one?

`python -m studies.noise FILE`: run what is not in FILE yet, choose on the tuning instances, and
print the tables of noise.md, which are from held-out instances. FILE keeps every run, so the study
can be stopped and resumed; `FILE 0` only prints.

`python -m studies.noise library 16` plays 16 of the held-out instances of each family with the
library itself, at its defaults, and prints how the two bonuses do.

Otherwise this is a model of Fed-LSVI and not the library: all agents' data in one place, rounds of
public lengths, as many as the practical preset pays for, and the episodes of a round drawn as
counts, which have the same law as episodes that are played. Values and regret are exact.

Everything down to `SLACK` was fixed before the first run.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numba import njit

from fedlsvi import FedLSVI, envs
from fedlsvi.core import theory
from fedlsvi.core.statistics import Packing
from fedlsvi.core.trigger import schedule
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experiments.runner import uniform
from fedlsvi.features import OneHot
from fedlsvi.groups import PRACTICAL_LAM
from studies.practical import AGENTS, FAMILIES, STUCK

TUNE, TEST = range(3000, 3024), range(4000, 4040)
"""Instances of each family to choose on, and to report on; no study has used them before."""

LENGTHS = (300, 1_000, 10_000)
"""Episodes per agent. Whether a run sticks is seen in the longest."""

MOST_ROUNDS = 250
"""The practical preset pays for more in long runs, but its determinants rarely ask for them."""


@dataclass(frozen=True)
class Candidate:
    """A bonus: c₁σ̂_h‖φ‖ + c₂v_h‖φ‖², or v_h‖φ‖/4 where both are 0.

    Attributes:
        c1, c2: The constants.
        prior: σ̂² = (RSS + v²/4)/(n − d′ + 1), with d′ = d − λ·tr Λ⁻¹ directions in force: one more
            observation, of the largest variance there is. False is RSS/max(n − d, 1).
        capped: Never more than v_h‖φ‖/4.
        linear: σ̂² of a pair is at least the variance of y there, regressed linearly.
    """

    c1: float = 0.0
    c2: float = 0.0
    prior: bool = False
    capped: bool = False
    linear: bool = False

    def __str__(self) -> str:
        if self.c1 == 0.0:
            return "v/4"
        words = [f"({self.c1:g}, {self.c2:g})"]
        words += [word for word in ("prior", "capped", "linear") if getattr(self, word)]
        return " ".join(words)


TODAY = Candidate()

CANDIDATES = (
    TODAY,
    Candidate(2.0, 0.1),
    Candidate(2.0, 0.1, prior=True),
    Candidate(1.0, 0.25, prior=True),
    Candidate(1.0, 0.5, prior=True),
    Candidate(2.0, 0.1, prior=True, capped=True),
    Candidate(2.0, 0.25, prior=True, capped=True),
    Candidate(1.0, 0.25, prior=True, capped=True),
    Candidate(1.0, 0.5, prior=True, capped=True),
    Candidate(2.0, 0.1, prior=True, capped=True, linear=True),
)

MORE = (
    Candidate(2.0, 0.1, capped=True),
    Candidate(2.0, 0.05, capped=True),
    Candidate(2.0, 0.05, prior=True, capped=True),
    Candidate(2.0, 0.02, prior=True, capped=True),
    Candidate(2.5, 0.05, prior=True, capped=True),
    Candidate(1.5, 0.1, prior=True, capped=True),
)
"""Added when the rule had chosen none of the list above, and before anything but today's default
was run on held-out instances."""

EVERY = CANDIDATES + MORE

HALF = 0.5
"""Regret over today's, geometric mean over families and lengths, at most."""

SLACK = {300: 1.15, 1_000: 1.15, 10_000: 1.05}
"""No family's mean regret may be this many times today's. Of the candidates that stick at most as
often as today's and keep to `HALF`, the one that is furthest inside its worst family's limit is
chosen if none keeps to all limits, else the one with the lowest regret of those that do."""


# ── worlds ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class World:
    """An instance as arrays; the leading axis is that of worlds that differ, agent m plays in
    world m mod W."""

    P: np.ndarray  # (W, 1 or H, S, A, S)
    r: np.ndarray  # the same shape
    first: np.ndarray  # (S,)
    phi: np.ndarray  # (S·A, d), or (S·A, 0) where features are one-hot
    horizon: int
    pooled: bool
    best: np.ndarray  # (W,) V*
    uniform: np.ndarray  # (W,)

    @property
    def dim(self) -> int:
        """d."""
        return int(self.phi.shape[1] or self.phi.shape[0])


def world(mdps: Sequence[FiniteMDP], one_hot: bool, pooled: bool) -> World:
    """What the kernel needs of one MDP, or of several with the same sizes."""
    env = mdps[0]
    S, A = env.n_states, env.n_actions
    steps = 1 if env.stationary else env.horizon
    made = [(_laws(mdp, steps), _rewards(mdp, steps)) for mdp in mdps]
    table = None if one_hot else env.phi
    mu = env.initial_law(0)
    return World(
        np.array([P for P, _ in made]), np.array([r for _, r in made]), np.array(mu),
        np.empty((S * A, 0)) if table is None else np.array(table).reshape(S * A, -1),
        env.horizon, pooled,
        np.array([mdp.optimal_values()[0] @ mu for mdp in mdps]),
        np.array([mdp.uniform_values()[0] @ mu for mdp in mdps]),
    )  # fmt: skip


def _laws(env: FiniteMDP, steps: int) -> np.ndarray:
    return np.array([env.transition(h) for h in range(1, steps + 1)])


def _rewards(env: FiniteMDP, steps: int) -> np.ndarray:
    given = env.reward_on_transition
    if given is not None:
        return np.array([given[h if len(given) > 1 else 0] for h in range(steps)])
    means = [env.reward(h) for h in range(1, steps + 1)]
    return np.array([np.repeat(r[:, :, None], env.n_states, axis=2) for r in means])


def _family(name: str) -> Callable[[int], World]:
    def made(i: int) -> World:
        env = FAMILIES[name](i)
        one_hot = name.endswith("one-hot") or env.phi is None
        return world([env], one_hot, env.stationary)

    return made


def _lottery(i: int, rare: bool, pooled: bool) -> World:
    """Six actions in the first state: five pay for sure, the best one is a lottery; then quiet
    steps. Rare: an episode begins there once in 20 to 100 times, and elsewhere each of the six
    pays for sure, and unlike."""
    rng = np.random.default_rng([23, i])
    horizon, p = int(rng.integers(5, 31)), float(rng.uniform(0.15, 0.5))
    P, r = np.zeros((4, 6, 4)), np.zeros((4, 6, 4))
    P[0, :5, 2] = 1.0
    r[0, :5, 2] = p * rng.uniform(0.3, 0.8)
    P[0, 5, 2:] = 1.0 - p, p
    r[0, 5, 3] = 1.0
    P[1, :, 2] = 1.0
    r[1, :, 2] = rng.uniform(0.0, 1.0, 6)
    P[2, :, 2] = P[3, :, 2] = 1.0
    often = 1.0 / float(rng.integers(20, 101)) if rare else 1.0
    env = FiniteMDP(P, r, horizon=horizon, initial=np.array([often, 1.0 - often, 0.0, 0.0]))
    return world([env], True, pooled)


def _few(i: int) -> World:
    """More one-hot directions than the first hundreds of episodes can fill."""
    return world([envs.Garnet(40, 4, 4, horizon=10, seed=9000 + i)], True, False)


def _unlike(i: int) -> World:
    """Two MDPs that are far from linear, each a tenth away from the same linear one."""
    rng = np.random.default_rng([29, i])
    d, H = int(rng.integers(4, 13)), int(rng.integers(4, 9))
    middle = envs.RandomLinearMDP(n_states=20, n_actions=4, dim=d, horizon=H, seed=9000 + i)
    return world(envs.xi_close(middle, 2, 0.1, noise="point", seed=i), False, False)


CORNERS: dict[str, Callable[[int], World]] = {
    "lottery": lambda i: _lottery(i, rare=False, pooled=False),
    "lottery, pooled": lambda i: _lottery(i, rare=False, pooled=True),
    "rare lottery": lambda i: _lottery(i, rare=True, pooled=False),
    "rare lottery, pooled": lambda i: _lottery(i, rare=True, pooled=True),
    "more directions than data": _few,
    "agents that differ": _unlike,
}
"""Where the bonus might fail; they take no part in the choice."""

CORNER_LENGTHS = (100, *LENGTHS)

WORLDS = {name: _family(name) for name in FAMILIES} | CORNERS


@lru_cache(maxsize=1)
def _world(family: str, instance: int) -> World:
    return WORLDS[family](instance)


# ── one run ─────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True)
def _factor(gram, lower, inverse):  # type: ignore[no-untyped-def]
    """L with Λ = LLᵀ, and L⁻¹."""
    d = gram.shape[0]
    inverse[:] = 0.0
    for j in range(d):
        for i in range(j, d):
            left = gram[i, j]
            for k in range(j):
                left -= lower[i, k] * lower[j, k]
            lower[i, j] = np.sqrt(left) if i == j else left / lower[j, j]
    for j in range(d):
        inverse[j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, d):
            total = 0.0
            for k in range(j, i):
                total -= lower[i, k] * inverse[k, j]
            inverse[i, j] = total / lower[i, i]


@njit(cache=True)
def _plan(N, r, phi, gram, lam, horizon, shape, numbers, flags, policy):  # type: ignore[no-untyped-def]
    """One backward pass over counts N (W, G, S, A, S): fills policy (H, S)."""
    W, G, S, A = shape
    c1, c2 = numbers
    constant, prior, capped, linear = flags
    pairs, one_hot = S * A, phi.shape[1] == 0
    d = pairs if one_hot else phi.shape[1]
    V, ahead = np.zeros(S), np.zeros(S)
    norm2, mean, second = np.empty(pairs), np.empty(pairs), np.empty(pairs)
    lower, inverse, white = np.zeros((d, d)), np.zeros((d, d)), np.empty((1, d))
    if not one_hot:
        white = np.empty((pairs, d))
    before, n, used = -1, 0.0, 0.0
    q1, q2 = np.empty(pairs), np.empty(pairs)
    for h in range(horizon - 1, -1, -1):
        g, at = min(h, G - 1), min(h, r.shape[1] - 1)
        v = float(horizon - h)
        if g != before:
            before, trace = g, 0.0
            if one_hot:
                for i in range(pairs):
                    norm2[i] = 1.0 / gram[g, i, 0]
                    trace += norm2[i]
            else:
                _factor(gram[g], lower, inverse)
                trace = (inverse * inverse).sum()
                white = phi @ inverse.T
                for i in range(pairs):
                    norm2[i] = (white[i] * white[i]).sum()
            n, used = N[:, g].sum(), d - lam * trace
        square = 0.0
        for s in range(S):
            for a in range(A):
                first = two = 0.0
                for w in range(W):
                    for z in range(S):
                        k = N[w, g, s, a, z]
                        if k > 0.0:
                            y = r[w, at, s, a, z] + ahead[z]
                            first += k * y
                            two += k * y * y
                q1[s * A + a], q2[s * A + a] = first, two
                square += two
        if one_hot:
            explained = 0.0
            for i in range(pairs):
                mean[i], second[i] = q1[i] * norm2[i], q2[i] * norm2[i]
                explained += mean[i] * q1[i]
        else:
            z1, z2 = q1 @ white, q2 @ white
            mean[:], second[:] = white @ z1, white @ z2
            explained = (z1 * z1).sum()
        rss = max(square - explained, 0.0)
        if prior:
            noise = (rss + 0.25 * v * v) / (max(n - used, 0.0) + 1.0)
        elif n > 0.0:
            noise = rss / max(n - d, 1.0)
        else:
            noise = 0.25 * v * v
        for s in range(S):
            best, top = -np.inf, 0
            for a in range(A):
                i = s * A + a
                width = np.sqrt(norm2[i])
                bonus = 0.25 * v * width
                if not constant:
                    here = noise
                    if linear:
                        middle = min(max(mean[i], 0.0), v)
                        here = max(noise, min(second[i] - middle * middle, 0.25 * v * v))
                    other = c1 * np.sqrt(here) * width + c2 * v * norm2[i]
                    bonus = min(bonus, other) if capped else other
                score = mean[i] + bonus
                if score > best + 1e-9 * abs(best) or a == 0:
                    best, top = score, a
            policy[h, s] = top
            V[s] = min(max(best, 0.0), v)
        ahead[:] = V


@njit(cache=True)
def _run(P, r, first, phi, horizon, pooled, best, ends, agents, lam, numbers, flags, seed):  # type: ignore[no-untyped-def]
    """Regret, and that of the last tenth."""
    np.random.seed(seed)  # noqa: NPY002 (the generator of compiled code)
    W, steps, S, A = P.shape[:4]
    G, T = 1 if pooled else horizon, ends[-1]
    pairs, one_hot = S * A, phi.shape[1] == 0
    d = pairs if one_hot else phi.shape[1]
    gram = np.zeros((G, d, 1 if one_hot else d))
    for g in range(G):
        for i in range(d):
            gram[g, i, 0 if one_hot else i] = lam
    N, policy = np.zeros((W, G, S, A, S)), np.zeros((horizon, S), np.int64)
    here, after = np.zeros(S, np.int64), np.zeros(S, np.int64)
    value, ahead = np.zeros(S), np.zeros(S)
    regret = late = 0.0
    t, start = 0, T - T // 10
    for end in ends:
        n = end - t
        _plan(N, r, phi, gram, lam, horizon, (W, G, S, A), numbers, flags, policy)
        for w in range(W):
            ahead[:] = 0.0
            for h in range(horizon - 1, -1, -1):
                at = min(h, steps - 1)
                for s in range(S):
                    total, a = 0.0, policy[h, s]
                    for z in range(S):
                        p = P[w, at, s, a, z]
                        if p > 0.0:
                            total += p * (r[w, at, s, a, z] + ahead[z])
                    value[s] = total
                ahead[:] = value
            loss = (best[w] - (ahead * first).sum()) * agents / W
            regret += n * loss
            late += max(end - max(t, start), 0) * loss
            left, mass = n * agents // W, 1.0
            for s in range(S):
                here[s] = _draw(left, first[s], mass)
                left -= here[s]
                mass -= first[s]
            for h in range(horizon):
                g, at = min(h, G - 1), min(h, steps - 1)
                after[:] = 0
                for s in range(S):
                    if here[s] == 0:
                        continue
                    a, left, mass = policy[h, s], here[s], 1.0
                    for z in range(S):
                        p = P[w, at, s, a, z]
                        if p > 0.0 and left > 0:
                            k = _draw(left, p, mass)
                            N[w, g, s, a, z] += k
                            after[z] += k
                            left -= k
                            mass -= p
                    i = s * A + a
                    if one_hot:
                        gram[g, i, 0] += here[s]
                    else:
                        for j in range(d):
                            for k in range(d):
                                gram[g, j, k] += here[s] * phi[i, j] * phi[i, k]
                here[:] = after
        t = end
    return regret, late


@njit(cache=True)
def _draw(left, p, mass):  # type: ignore[no-untyped-def]
    """How many of `left` draws take the next cell, of probability p out of `mass`."""
    if left == 0 or p <= 0.0:
        return 0
    return left if p >= mass - 1e-12 else np.random.binomial(left, p / mass)  # noqa: NPY002


@dataclass(frozen=True)
class Result:
    """One run: where, with what, and how it did."""

    family: str
    instance: int
    episodes: int
    candidate: str
    regret: float  # over that of the uniform policy
    late: float  # the same in the last tenth

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What makes it another run."""
        return self.family, self.instance, self.episodes, self.candidate


Job = tuple[str, int, int, Candidate]


def play(family: str, instance: int, episodes: int, candidate: Candidate) -> Result:
    """One run of a candidate on an instance."""
    made, M = _world(family, instance), AGENTS[instance % len(AGENTS)]
    packing: Packing = "packed" if made.phi.shape[1] else "diagonal"
    size = (made.dim, made.horizon, M, episodes)
    paid = theory.rounds_paid(*size, packing, 40, stationary=made.pooled, exploit=True)
    ends = schedule(episodes, min(paid, MOST_ROUNDS)).astype(np.int64)
    flags = candidate.c1 == 0.0, candidate.prior, candidate.capped, candidate.linear
    regret, late = _run(
        made.P, made.r, made.first, made.phi, made.horizon, made.pooled, made.best, ends, M,
        PRACTICAL_LAM, (candidate.c1, candidate.c2), flags, 1_000 * instance + M,
    )  # fmt: skip
    lost = M * float(np.mean(made.best - made.uniform))
    tenth = lost * (episodes // 10)
    return Result(
        family, instance, episodes, str(candidate), regret / (lost * episodes), late / tenth
    )


def jobs(
    families: Iterable[str], instances: Iterable[int], lengths: Iterable[int],
    candidates: Iterable[Candidate],
) -> list[Job]:  # fmt: skip
    """All runs of these candidates on these instances."""
    numbers, those, Ts = list(instances), list(candidates), list(lengths)
    return [(f, i, T, c) for f in families for i in numbers for T in Ts for c in those]


class Runs:
    """Results, as lines of a file that grows."""

    def __init__(self, path: Path, stopped: bool) -> None:
        self.path, self.stopped = path, stopped
        lines = path.read_text().splitlines() if path.exists() else []
        self.results = {r.key: r for r in (Result(**json.loads(line)) for line in lines)}

    def get(self, wanted: list[Job]) -> list[Result]:
        """These results; what is not there is played, unless runs are `stopped`."""
        with self.path.open("a") as file:
            for job in wanted:
                key = (*job[:3], str(job[3]))
                if key in self.results or self.stopped:
                    continue
                made = self.results[key] = play(*job)
                file.write(json.dumps(asdict(made)) + "\n")
                file.flush()
        keys = [(*job[:3], str(job[3])) for job in wanted]
        return [self.results[key] for key in keys if key in self.results]


# ── choice and tables ───────────────────────────────────────────────────────────────────────────

Cell = tuple[str, int]  # family, episodes
Table = Mapping[str, Mapping[Cell, list[Result]]]


def cells(results: Iterable[Result]) -> dict[str, dict[Cell, list[Result]]]:
    """By candidate, then by family and length."""
    made: dict[str, dict[Cell, list[Result]]] = {}
    for r in results:
        made.setdefault(r.candidate, {}).setdefault((r.family, r.episodes), []).append(r)
    return made


def ratios(table: Table, name: str) -> dict[Cell, float]:
    """Mean regret of every cell over today's on the same instances."""
    return {
        cell: float(np.mean([r.regret for r in runs]) / np.mean([r.regret for r in today]))
        for cell, today in table[str(TODAY)].items()
        if len(runs := table[name].get(cell, [])) == len(today)
    }


def stuck(runs: Iterable[Result]) -> int:
    """How many runs stick."""
    return sum(r.late > STUCK for r in runs)


def sticking(table: Table, name: str) -> int:
    """How many of the longest runs stick."""
    return sum(stuck(runs) for (_, T), runs in table[name].items() if max(LENGTHS) == T)


def geometric(values: Iterable[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))


def excess(table: Table, name: str) -> tuple[float, Cell]:
    """The worst family's regret over its limit, and which that is."""
    over = {cell: ratio / SLACK[cell[1]] for cell, ratio in ratios(table, name).items()}
    worst = max(over, key=lambda cell: over[cell])
    return over[worst], worst


def choose(table: Table) -> str | None:
    """The candidate that the rule takes; None keeps today's."""
    cost = {name: geometric(ratios(table, name).values()) for name in table}
    most = sticking(table, str(TODAY))
    able = [
        name
        for name in table
        if name != str(TODAY) and cost[name] <= HALF and sticking(table, name) <= most
    ]
    if not able:
        return None
    inside = [name for name in able if excess(table, name)[0] <= 1.0]
    if inside:
        return min(inside, key=lambda name: cost[name])
    return min(able, key=lambda name: excess(table, name)[0])


def overview(table: Table) -> Iterator[str]:
    """One line per candidate."""
    yield (
        "| bonus | regret ÷ today's | "
        + " | ".join(f"T = {T:,}" for T in LENGTHS)
        + " | sticks | worst family ÷ its limit |"
    )
    yield "|" + "---|" * (4 + len(LENGTHS))
    for name in table:
        made = ratios(table, name)
        each = [geometric(x for (_, T), x in made.items() if length == T) for length in LENGTHS]
        over, (family, T) = excess(table, name)
        numbers = [f"{geometric(made.values()):.2f}", *(f"{x:.2f}" for x in each)]
        yield (
            f"| {name} | {' | '.join(numbers)} | {sticking(table, name)} | "
            f"{over:.2f} ({family}, {T:,}) |"
        )


def by_family(table: Table, lengths: Sequence[int]) -> Iterator[str]:
    """One line per family and length."""
    others = [name for name in table if name != str(TODAY)]
    yield "| family | T | v/4 | sticks | " + " | ".join(f"{n} | ÷ | sticks" for n in others) + " |"
    yield "|" + "---|" * (4 + 3 * len(others))
    for (family, T), today in table[str(TODAY)].items():
        if T not in lengths:
            continue
        mean = float(np.mean([r.regret for r in today]))
        row = [family, f"{T:,}", f"{mean:.4f}", f"{stuck(today)} of {len(today)}"]
        for name in others:
            runs = table[name][family, T]
            other = float(np.mean([r.regret for r in runs]))
            row += [f"{other:.4f}", f"{other / mean:.2f}", str(stuck(runs))]
        yield f"| {' | '.join(row)} |"


def main(path: str, processes: int = 1) -> None:
    """Tune, choose, report on instances that took no part; with 0, only say what the file holds."""
    runs = Runs(Path(path), stopped=processes == 0)
    tuned = cells(runs.get(jobs(FAMILIES, TUNE, LENGTHS, EVERY)))
    print("On the tuning instances:\n")
    print("\n".join(overview(tuned)), flush=True)
    name = choose(tuned)
    print(f"\nchosen: {name}\n", flush=True)
    chosen = [c for c in EVERY if str(c) == name]
    held = cells(runs.get(jobs(FAMILIES, TEST, LENGTHS, (TODAY, *chosen))))
    print("On the instances held out:\n")
    print("\n".join(overview(held)) + "\n")
    print("\n".join(by_family(held, LENGTHS)) + "\n", flush=True)
    corners = cells(runs.get(jobs(CORNERS, TEST, CORNER_LENGTHS, (TODAY, *chosen))))
    print("Weak spots:\n")
    print("\n".join(by_family(corners, CORNER_LENGTHS)))


def library(instances: int, episodes: int = 1_000) -> Iterator[str]:
    """One line per family: regret over that of the uniform policy with each bonus, and rounds."""
    yield "| family | constant | noise | ÷ | rounds, constant | noise |"
    yield "|" + "---|" * 6
    for family, make in FAMILIES.items():
        row: dict[str, list[tuple[float, int]]] = {"constant": [], "noise": []}
        for i in TEST[:instances]:
            env, M = make(i), AGENTS[i % len(AGENTS)]
            features = OneHot() if family.endswith("one-hot") else None
            whole = uniform([env], M, episodes)
            for name, made in row.items():
                with warnings.catch_warnings():  # that it sends more than short runs pay for
                    warnings.simplefilter("ignore")
                    learner = FedLSVI(M, bonus=name)  # type: ignore[arg-type]
                    run = learner.learn(env, episodes, i, features=features, progress=False)
                assert run.regret is not None
                assert whole is not None
                made.append((float(run.regret[-1] / whole), run.rounds))
        regrets = [float(np.mean([r for r, _ in made])) for made in row.values()]
        rounds = [f"{np.median([k for _, k in made]):.0f}" for made in row.values()]
        shown = [*(f"{r:.4f}" for r in regrets), f"{regrets[1] / regrets[0]:.2f}", *rounds]
        yield f"| {family} | {' | '.join(shown)} |"


if __name__ == "__main__":
    if sys.argv[1] == "library":
        for line in library(int(sys.argv[2])):
            print(line, flush=True)
    else:
        main(sys.argv[1], *(int(a) for a in sys.argv[2:3]))

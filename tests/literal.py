"""Fed-LSVI the slow way: Algorithms 1 and 2 line by line, the reference of every fast path.

One agent, one episode, one step at a time; whole buffers; determinants by `slogdet`, systems by
`solve`, no recursion, no cumulative trick, no batch. From fedlsvi it uses the environments' scalar
methods and nothing else. Trailing comments give the line of the pseudo-code: S for the server
(Algorithm 1), A for the agent (Algorithm 2).

Steps h run from 1 to H in the code that talks to environments; arrays keep step h in row h − 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
State = Any  # an int in finite problems, a float vector in continuous ones
Features = Array | Callable[[Array], Array]
Transition = tuple[State, int, float, State]
Bonus = float | Sequence[Any]  # β, or one for each step; β, σ̂ and v where it knows the noise
Model = tuple[Array, Array]
Allowed = Callable[[int, State], Sequence[int]]  # (h, x) ↦ the actions that may be taken

NEAR_TIE = 1e-9
"""Two scores closer than this may be ordered by round-off; see `Greedy`."""


@dataclass
class LiteralRun:
    """What a literal run did; everything a fast run must reproduce."""

    taus: list[int] = field(default_factory=lambda: [1])
    models: list[Model] = field(default_factory=list)  # after the synchronisation of round k
    policies: list[Any] = field(default_factory=list)  # during round k, (H, S); None if continuous
    own: list[list[Any]] = field(default_factory=list)  # the same for each agent
    signals: list[set[int]] = field(default_factory=list)  # agents that signalled in round k
    firing: list[set[tuple[int, int]]] = field(default_factory=list)  # (agent, h) above threshold
    trajectories: list[list[list[Transition]]] = field(default_factory=list)  # [t−1][m][h−1]
    decisions: int = 0
    near_ties: int = 0  # decisions whose two best scores differ by less than NEAR_TIE, not zero
    deferred: int = 0  # near-ties where the advised action was taken
    regret: Array | None = None
    followed: dict[tuple[int, int], Array] = field(default_factory=dict)  # own policies: (t, m)
    sent: Array | None = None  # (M, H, d), the last response of every agent
    present: Sequence[int] = ()  # who played the last round

    @property
    def w(self) -> Array:
        return self.models[-1][0]

    @property
    def gram(self) -> Array:
        return self.models[-1][1]

    @property
    def actions(self) -> Array:
        """(T, M, H)."""
        return np.array([[[s[1] for s in path] for path in row] for row in self.trajectories])


def philox_4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of Salmon et al. (2011) in Python's own integers, as the paper defines it."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(c0 * 0xD2511F53, 2**32)
        high1, low1 = divmod(c2 * 0xCD9E8D57, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def uniform(seed: int, agent: int, episode: int, j: int, stream: int = 0) -> float:
    """Draw j of the agent in the episode: the upper 53 bits of half a Philox block."""
    key = seed % 2**32, seed >> 32
    a, b, c, d = philox_4x32((j // 2, episode, agent, stream), key)
    word = (a << 32 | b) if j % 2 == 0 else (c << 32 | d)
    return float(word >> 11) * 2.0**-53


class World:
    """The environment of one agent, played one step at a time with keyed draws."""

    def __init__(self, env: Any, seed: int, agent: int, key: int | None = None) -> None:
        self.env, self.seed, self.agent = env, seed, agent
        self.key = agent if key is None else key
        self.finite = hasattr(env, "n_states")

    def _draws(self, t: int, first: int, n: int) -> Array:
        return np.array([[uniform(self.seed, self.key, t, first + i) for i in range(n)]])

    def first(self, t: int) -> State:
        if self.finite:
            return self.env.first_state(self.agent, uniform(self.seed, self.key, t, 0))
        draws = self._draws(t, 0, self.env.draws_at_reset)
        return self.env.reset(draws, np.array([self.agent]))[0]

    def step(self, t: int, h: int, x: State, a: int) -> tuple[float, State]:
        if self.finite:
            r, y = self.env.step(h, x, a, uniform(self.seed, self.key, t, h))
            return float(r), int(y)
        per_step = self.env.draws_per_step
        draws = self._draws(t, self.env.draws_at_reset + (h - 1) * per_step, per_step)
        rewards, states = self.env.step(h, x[None], np.array([a]), draws)
        return float(rewards[0]), states[0]

    def play(self, t: int, policy: Callable[[int, State], int], H: int) -> list[Transition]:
        """One episode: x₁, then H times action, reward, next state."""
        x, path = self.first(t), []  # A10
        for h in range(1, H + 1):  # A11
            a = policy(h, x)  # A12
            r, y = self.step(t, h, x, a)  # A13
            path.append((x, a, r, y))  # A14
            x = y
        return path


def worlds(envs: Any, M: int, seed: int, keys: Sequence[int] | None = None) -> list[World]:
    """One world per agent: the same environment for all, or a list of M of them. What is no
    environment of fedlsvi makes its own (`literal_gym`)."""
    each = list(envs) if isinstance(envs, (list, tuple)) else [envs] * M
    made = [getattr(env, "world", World) for env in each]
    return [made[m](each[m], seed, m, None if keys is None else keys[m]) for m in range(M)]


@dataclass(frozen=True)
class Ended:
    """In place of a state: the episode is over, and this is what the steps left are worth, or what
    each of them pays."""

    worth: float
    rate: float | None = None


def feature_lookup(features: Features) -> Callable[[State], Array]:
    """x ↦ the (A, d) array of φ(x, ·)."""
    if isinstance(features, np.ndarray):
        return lambda x: features[x]
    return lambda x: np.asarray(features(np.asarray(x)[None])[0])


def scores(phi: Array, w: Array, gram: Array, beta: Any) -> Array:
    """φᵀw + β‖φ‖_{Λ⁻¹} for each action: Q of eq. (QV) before the projection. Where β comes with
    the noise, min(β‖φ‖, 1.5σ̂‖φ‖ + .1v‖φ‖²) in its place."""
    width = [math.sqrt(max(f @ np.linalg.solve(gram, f), 0.0)) for f in phi]
    if isinstance(beta, tuple):
        most, noise, v = beta
        beta = 1.0
        width = [min(most * s, 1.5 * noise * s + 0.1 * v * s * s) for s in width]
    return np.array([f @ w + beta * s for f, s in zip(phi, width, strict=True)])


def at_step(beta: Bonus, h: int) -> Any:
    """β_h, or β_h, σ̂_h and v_h."""
    one = beta[h - 1] if isinstance(beta, Sequence) else beta
    return one if isinstance(one, tuple) else float(one)


def literal_noise(
    data: Sequence[tuple[Array, float]], w: Array, gram: Array, lam: float, v: float
) -> float:
    """σ̂ of all (φ, y) of a step, from their residuals, and one more of variance v²/4."""
    residual = sum((y - f @ w) ** 2 for f, y in data) + lam * float(w @ w)
    used = len(w) - lam * float(np.trace(np.linalg.inv(gram)))
    return math.sqrt((residual + v * v / 4.0) / (max(len(data) - used, 0.0) + 1.0))


def tapered(beta: float, H: int, value_range: float = math.inf) -> list[float]:
    """β_h = β·v_h/v_1 with v_h = min(H − h + 1, v): what is left of the value range."""
    left = [min(H - h + 1.0, value_range) for h in range(1, H + 1)]
    return [beta * v / left[0] for v in left]


def value(
    phi: Array, w: Array, gram: Array, beta: float, upper: float,
    which: Sequence[int] | None = None,
) -> float:  # fmt: skip
    """V(x) = max_a Π_[0, upper] score(x, a), over the actions `which`."""
    every = scores(phi, w, gram, beta)
    some = every if which is None else [every[a] for a in which]
    return max(min(max(float(q), 0.0), upper) for q in some)


def fires(gram: Array, local: Array, dt: int, gamma: float, cap: float = math.inf) -> bool:
    """det(Λser + Λloc)/det(Λser) ≥ min(γ/Δt, c) in logarithms; outright when Δt ≥ γ (decisions,
    (i))."""
    ratio = np.linalg.slogdet(gram + local)[1] - np.linalg.slogdet(gram)[1]
    least = min(math.log(gamma) - math.log(dt), math.log(cap))
    return dt >= gamma or max(ratio, 0.0) >= least - 1e-9


def greedy_index(score: Array) -> int:
    """The lowest index that no later one beats by more than 1e-9 of its size."""
    best = 0
    for a in range(1, len(score)):
        if score[a] > score[best] + 1e-9 * abs(score[best]):
            best = a
    return best


def greedy_table(scores: Array) -> Array:
    """`greedy_index` along the last axis."""
    return np.apply_along_axis(greedy_index, -1, scores)


class Greedy:
    """π_h(x) = argmax_a of the unclipped score, then the lowest index; frozen for a round.

    `advised` is the (H, S) table of a run under test. Where it names an action whose score is
    within NEAR_TIE of the best, that action is taken and the deferral counted: round-off decides
    such a decision, and following it keeps the two runs comparable afterwards.
    """

    def __init__(
        self,
        phi: Callable[[State], Array],
        model: Model,
        beta: Bonus,
        run: LiteralRun,
        advised: Array | None = None,
        allowed: Allowed | None = None,
    ) -> None:
        self.allowed = allowed
        self.phi, self.model, self.beta, self.run, self.advised = phi, model, beta, run, advised
        self.known: dict[tuple[int, int], int] = {}

    def __call__(self, h: int, x: State) -> int:
        if not isinstance(x, (int, np.integer)):
            return self._decide(h, x)
        if (h, int(x)) not in self.known:
            self.known[h, int(x)] = self._decide(h, x)
        return self.known[h, int(x)]

    def _decide(self, h: int, x: State) -> int:
        w, gram = self.model
        score = scores(self.phi(x), w[h - 1], gram[h - 1], at_step(self.beta, h))
        which = range(len(score)) if self.allowed is None else self.allowed(h, x)
        best = which[greedy_index(np.array([score[a] for a in which]))]
        others = np.array([score[a] for a in which if a != best])
        self.run.decisions += 1
        if others.size and 0.0 < abs(score[best] - others.max()) < NEAR_TIE:
            self.run.near_ties += 1
        if self.advised is None or self.advised[h - 1, x] == best:
            return best
        advised = int(self.advised[h - 1, x])
        if score[best] - score[advised] < NEAR_TIE:
            self.run.deferred += 1
            return advised
        return best


DIVERSITY = 48
"""Stream of the perturbations."""


class Perturbed(Greedy):
    """argmax_a of the score plus σβ·(L⁻¹φ)ᵀζ, ζ_i ∈ [−1, 1) drawn for this agent and episode."""

    def __init__(self, common: Greedy, diversity: float, seed: int, agent: int, t: int) -> None:
        about = (common.phi, common.model, common.beta, common.run)
        super().__init__(*about, allowed=common.allowed)
        d = common.model[0].shape[1]
        self.zeta = [2.0 * uniform(seed, agent, t, i, DIVERSITY) - 1.0 for i in range(d)]
        self.diversity = diversity

    def _decide(self, h: int, x: State) -> int:
        w, gram = self.model
        factor, phi = np.linalg.cholesky(gram[h - 1]), self.phi(x)
        along = [float(np.linalg.solve(factor, f) @ self.zeta) for f in phi]
        beta = at_step(self.beta, h)
        score = scores(phi, w[h - 1], gram[h - 1], beta)
        if isinstance(beta, tuple):  # what the width of each action is multiplied by
            most, noise, v = beta
            width = [math.sqrt(f @ np.linalg.solve(gram[h - 1], f)) for f in phi]
            beta = np.array([min(most, 1.5 * noise + 0.1 * v * s) for s in width])
        score = score + self.diversity * beta * np.array(along)
        which = range(len(score)) if self.allowed is None else self.allowed(h, x)
        return which[greedy_index(np.array([score[a] for a in which]))]


def advice_for(advice: Sequence[Array] | None, k: int) -> Array | None:
    """The advised table of round k (counted from 0), where there is one."""
    return None if advice is None or k >= len(advice) else np.asarray(advice[k])


def upper_bounds(clip: Sequence[float] | None, H: int) -> list[float]:
    """The projection's upper end at h = 1 … H; the paper's is H at every step."""
    return [float(H)] * H if clip is None else [float(c) for c in clip]


def follow(table: Array) -> Callable[[int, State], int]:
    """The policy that a table (H, S) holds."""
    return lambda h, x: int(table[h - 1, x])


def tabulated(policy: Callable[[int, State], int], world: World, H: int) -> Array:
    """The whole policy (H, S)."""
    states = range(world.env.n_states)
    return np.array([[policy(h, x) for x in states] for h in range(1, H + 1)])


def freeze(
    run: LiteralRun, policy: Greedy, world: World, H: int, others: Sequence[Greedy] = ()
) -> Greedy:
    """The policy of a round; finite problems tabulate it, so that whole tables can be compared.
    `others` are those of agents 1, 2, … where they have their own."""
    steps = range(1, H + 1)
    states = range(world.env.n_states) if world.finite else ()
    tables = [np.array([[own(h, x) for x in states] for h in steps]) for own in (policy, *others)]
    run.policies.append(tables[0] if world.finite else None)
    run.own.append(tables)
    return policy


def literal_fed_lsvi(
    envs: Any,
    features: Features,
    M: int,
    T: int,
    H: int,
    seed: int,
    lam: float,
    beta: Bonus,
    gamma: float,
    clip: Sequence[float] | None = None,
    *,
    stale: bool = False,
    weight: int = 1,
    keys: Sequence[int] | None = None,
    advice: Sequence[Array] | None = None,
    cap: float = math.inf,
    min_round: int = 1,
    points: Sequence[int] = (),
    growth: float = 0.0,
    stationary: bool = False,
    there: Callable[[int, int], Sequence[int]] | None = None,
    diversity: float = 0.0,
    allowed: Sequence[Allowed] | None = None,
    logs: Sequence[Sequence[Sequence[Transition]]] | None = None,
    only_logged: Sequence[int] = (),
    prior: tuple[Array, Array] | None = None,
    noisy: bool = False,
    relabels: bool = False,
) -> LiteralRun:
    """Algorithms 1 and 2. The variants: a ratio of `cap` fires; no round is shorter than
    `min_round`, no upload of a step has fewer samples, nor does a round end before the next of
    `points`; γ is max(growth·t, 1) for a round that begins after episode t; `stationary` takes
    every step's data for every step, with one Λ, whose determinant counts as step H's; in round k,
    which begins after episode t, only the agents there(k, t) play, each its own next episode, and
    the others' last b stands. Agent m takes, and expects to take, only actions of allowed[m]. Its
    data begin with logs[m][h−1] at step h, of which the server hears in a round before the first;
    `only_logged` agents play nothing. `prior` is Λ₀ − λI (H, d, d) and b₀ (H, d), known to the
    server from the start. With `relabels` the server has what it needs to make responses of the
    others' data anew. With `diversity` every agent and episode has a policy of its own. `stale`
    takes V_{h+1} from the model before the synchronisation; `weight` counts every sample that often
    at the server, never in the trigger; `keys` gives the agents other agents' draws. `noisy` has a
    bonus that knows the noise."""
    agents = worlds(envs, M, seed, keys)
    phi, upper, run = feature_lookup(features), upper_bounds(clip, H), LiteralRun()
    d = phi(agents[0].first(1)).shape[1]
    betas = [at_step(beta, h) for h in range(1, H + 1)]
    if noisy:
        beta = [(most, v / 2.0, v) for most, v in zip(betas, upper, strict=True)]
    gram = np.stack([lam * np.eye(d)] * H)  # S2
    w = np.zeros((H, d))  # S2, S3
    known_before = np.zeros((H, d))
    if prior is not None:
        gram, known_before = gram + prior[0], prior[1]
        w = np.array([np.linalg.solve(g, b) for g, b in zip(gram, known_before, strict=True)])
    data: list[list[list[Transition]]] = [[[] for _ in range(H)] for _ in range(M)]  # A1
    sent, own, told = np.zeros((M, H, d)), [0] * M, np.zeros((M, H), int)
    if logs is not None:
        for m, i in ((m, i) for m in range(M) for i in range(H)):
            few = not stationary and len(logs[m][i]) < min_round
            data[m][i] += [] if few else list(logs[m][i])
            told[m, i] = len(data[m][i])
        for i in reversed(range(H)):
            b = known_before[i].copy()
            for m in range(M):
                which = None if allowed is None else allowed[m]
                ahead_of_m = values_after(i + 1, phi, (w, gram), beta, upper, which)
                for part in data[m] if stationary else [data[m][i]]:
                    sent[m, i] += response(part, phi, ahead_of_m)
                    for x, a, _, _ in part:
                        gram[i] += np.outer(phi(x)[a], phi(x)[a])
                b += sent[m, i]
            w[i] = np.linalg.solve(gram[i], b)
    rows: dict[tuple[int, int], list[tuple[Array, float]]] = {}
    t = 0
    while t < T:  # S4, A3
        dt = 0  # A4
        if growth > 0.0:
            gamma = max(growth * t, 1.0)
        earliest = max([t + min_round, *[s for s in points if s > t][:1]])
        local = np.zeros((M, H, d, d))  # A5–A7
        who = range(M) if there is None else there(len(run.signals) + 1, t)
        advised = advice_for(advice, len(run.signals))
        follows = [
            Greedy(phi, (w, gram), beta, run, advised, None if allowed is None else allowed[m])
            for m in range(1 if allowed is None else M)
        ]  # A2, A29
        freeze(run, follows[0], agents[0], H, follows[1:])
        follows = follows if allowed is not None else follows * M
        signalling: set[int] = set()
        while not signalling and t < T:  # A8
            t, dt = t + 1, dt + 1  # A9
            run.trajectories.append([[] for _ in range(M)])
            for m in (m for m in who if m not in only_logged):
                own[m] += 1
                acts = follows[m]
                if diversity:
                    acts = Perturbed(acts, diversity, seed, m, own[m])
                run.trajectories[-1][m] = agents[m].play(own[m], acts, H)  # A10–A16
                if diversity and agents[m].finite:
                    run.followed[t, m] = tabulated(acts, agents[m], H)
                for i, (x, a, r, y) in enumerate(run.trajectories[-1][m]):
                    data[m][i].append((x, a, r, y))  # A14
                    local[m, i] += np.outer(phi(x)[a], phi(x)[a])  # A15
            seen = np.stack([local.sum(axis=1)] * H, axis=1) if stationary else local
            firing = {
                (m, i + 1)
                for m in who
                if m not in only_logged
                for i in ([H - 1] if stationary else range(H))
                if earliest <= t <= T - min_round and fires(gram[i], seen[m, i], dt, gamma, cap)
            }  # A17
            signalling = {m for m, _ in firing}  # A18
        run.firing.append(firing)
        run.signals.append(set(who) if t == T else signalling)  # A21–A23, S5, S6
        run.taus.append(t + 1)
        old_w, old_gram = w, gram
        w, gram = w.copy(), gram.copy()
        for i in reversed(range(H)):  # S7, A25
            source = (old_w, old_gram) if stale else (w, gram)
            ahead = [
                values_after(i + 1, phi, source, beta, upper, which)
                for which in (allowed or [None] * M)
            ]  # A24, A29
            b = known_before[i].copy()
            for m in range(M):
                new = seen[m, i]
                if m in who and not stationary:
                    # too few that reached a late step wait for a later round
                    waiting = data[m][i][told[m, i] :]
                    waiting = waiting if len(waiting) >= min_round else []
                    new = sum((np.outer(phi(x)[a], phi(x)[a]) for x, a, _, _ in waiting), 0.0)
                    told[m, i] += len(waiting)
                if m in who or relabels:
                    known = data[m] if stationary else [data[m][i][: told[m, i]]]
                    sent[m, i] = sum(response(part, phi, ahead[m]) for part in known)
                    if noisy:
                        rows[m, i] = [
                            (phi(x)[a], r + ahead[m](y)) for part in known for x, a, r, y in part
                        ]
                b += weight * sent[m, i]  # A26, A27, S8, S10
                gram[i] = gram[i] + weight * new  # S9
            w[i] = np.linalg.solve(gram[i], b)  # S11, S12, A28
            if noisy:
                every = [pair for m in range(M) for pair in rows.get((m, i), [])]
                level = literal_noise(every, w[i], gram[i], lam, upper[i])
                beta = [*beta[:i], (betas[i], level, upper[i]), *beta[i + 1 :]]
        run.models.append((w, gram))
    run.regret, run.sent, run.present = literal_regret(run, agents, allowed), sent, who
    return run


def values_after(
    h: int, phi: Callable[[State], Array], model: Model, beta: Bonus, upper: Sequence[float],
    allowed: Allowed | None = None,
) -> Callable[[State], float]:  # fmt: skip
    """V_{h+1} of the model; V_{H+1} = 0."""
    w, gram = model

    def ahead(y: State) -> float:
        if isinstance(y, Ended):
            return y.worth if y.rate is None else (len(w) - h) * y.rate
        if h == len(w):
            return 0.0
        which = None if allowed is None else allowed(h + 1, y)
        return value(phi(y), w[h], gram[h], at_step(beta, h + 1), upper[h], which)

    return ahead


def response(
    data: list[Transition], phi: Callable[[State], Array], next_value: Callable[[State], float]
) -> Array:
    """b = Σ φ(x, a)(r + V_{h+1}(x′)) over the whole buffer (eq. b). Equal states, equal values:
    V is computed once per distinct finite state."""
    known: dict[int, float] = {}

    def v(y: State) -> float:
        if not isinstance(y, (int, np.integer)):
            return next_value(y)
        if int(y) not in known:
            known[int(y)] = next_value(y)
        return known[int(y)]

    total: Array = np.sum([phi(x)[a] * (r + v(y)) for x, a, r, y in data], axis=0)
    return total


def backward_values(env: Any, policy: Array | None, allowed: Allowed | None = None) -> Array:
    """V₁ of a finite problem by the Bellman recursion: of the policy (H, S), or the optimum."""
    v = np.zeros(env.n_states)
    for h in range(env.horizon, 0, -1):
        q = np.asarray(env.reward(h)) + np.asarray(env.transition(h)) @ v
        if policy is None and allowed is not None:
            v = np.array([max(q[x, a] for a in allowed(h, x)) for x in range(len(q))])
            continue
        v = q.max(axis=1) if policy is None else q[np.arange(len(q)), policy[h - 1]]
    return v


def literal_regret(
    run: LiteralRun, agents: Sequence[World], allowed: Sequence[Allowed] | None = None
) -> Array | None:
    """Σ_{s ≤ t} Σ_m V*_m(x₁) − V^π_m(x₁) of finite problems, at the states that came."""
    if not agents[0].finite:
        return None
    per_episode = []
    sets = allowed or [None] * len(agents)
    best = [backward_values(a.env, None, own) for a, own in zip(agents, sets, strict=True)]
    tabled = run.own or [[table] for table in run.policies]
    for tables, first, stop in zip(tabled, run.taus[:-1], run.taus[1:], strict=True):
        each = tables if len(tables) > 1 else tables * len(agents)
        got = [backward_values(a.env, own) for a, own in zip(agents, each, strict=True)]
        for t in range(first, stop):
            row = run.trajectories[t - 1]
            starts = [(m, path[0][0]) for m, path in enumerate(row) if path]
            for m, _ in starts:
                if (t, m) in run.followed:
                    got[m] = backward_values(agents[m].env, run.followed[t, m])
            per_episode.append(sum(best[m][x] - got[m][x] for m, x in starts))
    return np.cumsum(per_episode)

"""What the server checks on every reply before it touches state, without seeing data.

With n the round's episodes, t all episodes so far, G an agent's Gram matrix over all rounds and
y_max = 1 at h = H, 1 + the ceiling of V_{h+1} before:

    Λ^loc finite, ⪰ 0, tr Λ^loc ≤ n, rank ≤ n      (exactly the sums of n vectors in the unit ball)
    b finite, [[G, b], [bᵀ, t·y_max²]] ⪰ 0          (b is Σφy for some |y| ≤ y_max)
    at h = H: the same for b's increment over this round alone
    n ≤ ⌈γ⌉, and no signal names an episode beyond those requested; an agent that signals has a
    determinant ratio ≥ γ/n at the step it names, and no agent's is so large that it must have
    signalled an episode earlier
    after aggregation wᵀΛw ≤ M·t·y_max²

Where all steps share a Gram matrix, an episode puts H vectors into it: n and t above are then
numbers of steps, Λ^loc comes with h = H alone, and so does the determinant.

An agent that invents consistent data passes: no such check can tell. The codec has already checked
shapes. The figures of all agents come from one compiled pass; only a failed check looks for the
agent that caused it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from fedlsvi.core.statistics import unpack
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Layout,
    Model,
    Models,
    Request,
    Signal,
    Start,
    Stop,
    Upload,
    gram_of,
)
from fedlsvi.remote.facts import Facts
from fedlsvi.remote.guard_kernels import (
    DEPTH,
    ENERGY,
    FIGURES,
    GROWTH,
    LEAST,
    MOST,
    SHAKY,
    STEP,
    SUM,
    TRACE,
    examine,
    quadratic,
    reveal,
    weights,
)

TOLERANCE = 1e-9
"""Relative slack for rounding, per episode."""

RANK_TOLERANCE = 1e-7
"""What counts as zero when a rank is computed, per episode."""


class Refusal(MessageRefused):
    """A message that no honest agent could have sent.

    Attributes:
        agent, round, step: Where it came from; step 0 where it belongs to no step, agent −1 for
            the server's own model.
        field, value, bound: What was wrong, and what is allowed.
    """

    code = "impossible-message"

    def __init__(self, agent: int, round_: int, h: int, name: str, value: object, bound: str):
        self.agent, self.round, self.step = agent, round_, h
        self.field, self.value, self.bound = name, value, bound
        where = f"agent {agent}, round {round_}" + (f", step {h}" if h else "")
        super().__init__(f"{where}: {name} is {value}, must be {bound}")


@dataclass
class Guard:
    """The checks, and what they remember: each agent's Gram matrices and last b_H.

    Attributes:
        t: The last episode of the round before.
        round: The round under way, 1-based, where logs are round 0; it grows when the round's last
            model is sent.
        length: Episodes of the round under way, once it has stopped.
        logged: Episodes of logs in an agent's sums before this round.
        reading: Whether this is the round of the logs.
        exploiting: Whether the run has ended and all pass backward once more, without Λ^loc.
    """

    layout: Layout
    facts: Facts
    tolerance: float = TOLERANCE
    gram: np.ndarray = field(init=False)  # (H, M, P) or (1, M, P), over all rounds
    last: np.ndarray = field(init=False)  # (M, d), b_H of the round before
    upto: np.ndarray = field(init=False)  # (H, M), the last episode of the last upload, not zero

    def __post_init__(self) -> None:
        size, P = self.layout, self.layout.packed
        self.gram = np.zeros((size.matrices, size.n_agents, P))
        self.last = np.zeros((size.n_agents, size.dim))
        self.upto = np.zeros((size.horizon, size.n_agents), np.int64)
        self.t, self.round, self.length = 0, 0 if self.facts.logged else 1, 0
        self.logged, self.reading = 0, False
        self.exploiting = False
        self._requested = 0  # episodes of the round under way that the server requested so far
        self._named: dict[int, list[int]] = {}  # step → agents that named it when they signalled
        self._model = np.zeros((size.matrices, P))
        self._where = unpack(np.arange(P), size.dim, size.packing)
        self._weights: dict[int, np.ndarray] = {}

    # what the server sends

    def sends(self, message: Request) -> None:
        """The server sends this; raises for a model that no uploads can have led to."""
        match message:
            case Start(gram=gram, t=t):
                self.t, self._model, self._weights = t, gram.copy(), {}
                self._named, self._requested, self.exploiting = {}, 0, False
                self.logged, self.reading = self.facts.logged if t > 0 else 0, False
            case Exploit():
                self.length, self.exploiting = 0, True
            case Model(h=h, w=w, gram=gram) if self.exploiting:
                self._check_model(h, w, gram)
            case Explore(limit=limit):
                self._requested += limit
            case Stop(t=t):
                self.length, self.reading = t - self.t, t == self.t
                if self.reading:
                    self.length = self.facts.logged
            case Models(w=w, gram=gram):
                for h in range(len(w), 0, -1):
                    self.sends(Model(h, w[h - 1], gram_of(gram, h, len(w))))
            case Model(h=h, w=w, gram=gram):
                self._check_model(h, w, gram)
                gram_of(self._model, h, self.layout.horizon)[:] = gram
                self._weights.pop(h, None)
                if h == 1 and self.reading:
                    self.logged, self.round, self.reading = self.length, self.round + 1, False
                elif h == 1:
                    self.t, self.round = self.t + self.length, self.round + 1
                    self._named, self._requested = {}, 0

    def _check_model(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        if self.facts.trigger.public:  # a private run: noise knows no such bound
            return
        energy = quadratic(w, gram if gram.size else self._base(h), self._where)
        seen = self.layout.n_agents * self._total
        most = seen * float(self.facts.y_max[h - 1]) ** 2
        most += 0.0 if self.facts.prior is None else float(self.facts.prior[h - 1])
        if not energy <= most * (1.0 + 1e-6) + TOLERANCE:
            raise Refusal(-1, self.round, h, "wᵀΛw of the new model", energy, f"at most {most:g}")

    @property
    def _total(self) -> int:
        """Vectors in the sums of an agent at most, with this round."""
        return (self.t + self.logged + self.length) * self.facts.steps

    def _base(self, h: int) -> np.ndarray:
        """Λ_h of the model in force, (P,)."""
        model: np.ndarray = self._model[min(h, len(self._model)) - 1]
        return model

    # what agents send

    def signal(self, first: int, agents: int, signal: Signal) -> None:
        """Check a signal of the cohort of agents first … first + agents − 1."""
        if signal.t == 0 and len(signal.agents) == 0:
            return
        longest = self.facts.episodes - self.t
        if self.facts.overshoot == "cut":
            longest = min(longest, self.facts.trigger.longest(self.t))
        if self._requested:
            longest = min(longest, self._requested)
        trigger = self.facts.trigger
        if not trigger.floor(self.t) <= signal.t - self.t <= longest or not trigger.ends(
            self.t, signal.t
        ):
            bound = f"{self.t + trigger.floor(self.t)} to {self.t + longest}"
            raise Refusal(first, self.round, 0, "signal's t", signal.t, bound)
        names = signal.agents
        inside = (names >= first) & (names < first + agents)
        if len(names) == 0 or not inside.all() or (np.diff(names) <= 0).any():
            bound = f"numbers from {first} to {first + agents - 1}, rising"
            raise Refusal(first, self.round, 0, "signal's agents", names.tolist()[:8], bound)
        final = signal.t == self.facts.episodes
        lawful = (signal.steps == 0) if final else (signal.steps > 0)
        lawful &= signal.steps <= self.layout.horizon
        if not lawful.all():
            i = int(np.flatnonzero(~lawful)[0])
            bound = "0 in the last episode, else a step"
            raise Refusal(
                int(names[i]), self.round, 0, "signal's step", int(signal.steps[i]), bound
            )

    def stops(self, signal: Signal) -> None:
        """This signal ends the round: the agents it names must show the determinant."""
        self._named = {}
        for agent, step in zip(signal.agents.tolist(), signal.steps.tolist(), strict=True):
            if step > 0:
                self._named.setdefault(step, []).append(agent)

    def upload(self, first: int, agents: int, h: int, upload: Upload) -> None:
        """Check an upload of step h from agents first … first + agents − 1; changes nothing."""
        self._same_step(first, h, upload)
        if self.facts.waits and (t := int(self.upto[h - 1, first : first + agents].min())) < self.t:
            self.since(t)._upload(first, agents, h, upload)
        else:
            self._upload(first, agents, h, upload)

    def _upload(self, first: int, agents: int, h: int, upload: Upload) -> None:
        before = self.gram[min(h, len(self.gram)) - 1, first : first + agents]
        before.setflags(write=False)  # like all that a message holds: one kind for the kernels
        if (size := upload.gram.shape[1]) != (agreed := self.gram_size(h)):
            raise Refusal(first, self.round, h, "size of gram", size, f"{agreed}")
        if not size:
            self._finite(first, h, upload)
            self._response(first, h, upload, before)
            return
        if self.layout.packing != "packed":
            self._finite(first, h, upload)  # a packed one is summed in passing
        if self.layout.packing == "diagonal":
            self._diagonal(first, h, upload, before)
        else:
            self._dense(first, h, upload, before)

    def gram_size(self, h: int) -> int:
        """Scalars of the Gram matrix in an upload of step h that is due now."""
        return 0 if self.exploiting else self.layout.gram_size(h)

    def form(self, first: int, h: int, upload: Upload) -> None:
        """Check only that an upload is of step h and finite."""
        self._same_step(first, h, upload)
        self._finite(first, h, upload)

    def _same_step(self, first: int, h: int, upload: Upload) -> None:
        if upload.h != h:
            raise Refusal(first, self.round, h, "step", upload.h, f"{h}")

    def _finite(self, first: int, h: int, upload: Upload) -> None:
        for name, array in (("gram", upload.gram), ("b", upload.b)):
            if not math.isfinite(array.sum()) and not (finite := np.isfinite(array)).all():
                i, j = np.argwhere(~finite)[0]
                raise Refusal(
                    first + int(i), self.round, h, f"{name}[{j}]", float(array[i, j]), "finite"
                )

    def accept(self, first: int, upload: Upload) -> None:
        """Take note of an upload of agents from `first` on that passed, or of their withdrawal."""
        if self.exploiting:  # the same data once more
            return
        rows = slice(first, first + len(upload.b))
        own = gram_of(self.gram, upload.h, self.layout.horizon)[rows]
        own += upload.gram
        if self.facts.waits and not self.reading:
            heard = np.flatnonzero(upload.gram.any(axis=1)) + first
            self.upto[upload.h - 1, heard] = self.t + self.length
        if upload.h == self.layout.horizon:
            self.last[rows] = upload.b

    def since(self, t: int) -> Guard:
        """These checks for a cohort whose last accepted upload was at episode t: its increments
        cover several rounds, and it need not have signalled in those that it missed."""
        late = copy(self)
        late.t, late.length = t, self.t + self.length - t
        late.facts = replace(self.facts, overshoot="keep")
        return late

    def withdrawal(self, first: int, agents: int, h: int) -> Upload:
        """The upload that takes back all that these agents contributed to step h. Where steps
        share Λ, it is taken out with the next step H."""
        rows = gram_of(self.gram, h, self.layout.horizon)[first : first + agents]
        return Upload(h, -rows, np.zeros((agents, self.layout.dim)))

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        kept = {"guard.gram": self.gram, "guard.last": self.last}
        return kept | {"guard.upto": self.upto} if self.facts.waits else kept

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        self.gram[:], self.last[:] = arrays["guard.gram"], arrays["guard.last"]
        if self.facts.waits:
            self.upto[:] = arrays["guard.upto"]
        self.t, self.round, self.logged = t, k + 1, self.facts.logged

    def _fail(self, first: int, h: int, wrong: np.ndarray, name: str, value: np.ndarray,
              bound: str) -> None:  # fmt: skip
        """Raise for the first agent for which `wrong` holds."""
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise Refusal(first + i, self.round, h, name, float(value[i]), bound)

    def _response(self, first: int, h: int, upload: Upload, seen: np.ndarray) -> None:
        """b of a step whose Gram matrix came before it: `seen`, the round included."""
        n, y, b = self.length * self.facts.steps, float(self.facts.y_max[h - 1]), upload.b
        if self.layout.packing == "diagonal":
            self._range(first, h, b, y * seen, "b")
            return
        total, m = self._total, len(b)
        found, nobody = np.empty((FIGURES, m)), np.zeros(m, np.bool_)
        base, small = self._base(h), self.tolerance
        nothing = np.zeros_like(seen)
        nothing.setflags(write=False)
        examine(
            nothing, seen, b, b, base, np.zeros(self._where.shape), self._where, small * n,
            small * total, small, False, math.inf, nobody, found,
        )  # fmt: skip
        self._energy(first, h, found[ENERGY], found[ENERGY].max(), total * y * y, "bᵀG⁺b")
        if self.facts.nonnegative or self.facts.simplex:
            wrong = found[DEPTH] > small * total * y
            self._fail(first, h, wrong, "smallest entry of b", -found[DEPTH], "at least 0")

    def _diagonal(self, first: int, h: int, upload: Upload, before: np.ndarray) -> None:
        """One-hot features: Λ^loc counts visits, each step one."""
        n, y = self.length * self.facts.steps, float(self.facts.y_max[h - 1])
        gram, b = upload.gram, upload.b
        least, off = gram.min(axis=1), np.abs(gram - np.rint(gram)).max(axis=1)
        self._fail(first, h, least < 0.0, "smallest count", least, "at least 0")
        self._fail(first, h, off > 0.0, "fraction in a count", off, "0: counts are integers")
        visits = gram.sum(axis=1)
        wrong = visits > n if self.facts.partial else visits != n
        self._fail(first, h, wrong, "sum of counts", visits, f"{n}, the round's episodes")
        self._range(first, h, b, y * (before + gram), "b")
        if h == self.layout.horizon:
            self._range(first, h, b - self.last[first : first + len(b)], gram, "increment of b")
        base = self._base(h)
        self._ratios(first, h, np.log1p(gram / base).sum(axis=1), float(base.min()))

    def _range(self, first: int, h: int, b: np.ndarray, most: np.ndarray, name: str) -> None:
        """0 ≤ b_i ≤ most_i."""
        slack = self.tolerance * (1.0 + most.max(axis=1))
        low, high = b.min(axis=1), (b - most).max(axis=1)
        self._fail(first, h, low < -slack, f"smallest entry of {name}", low, "at least 0")
        bound = "at most y_max times the count beside it"
        self._fail(first, h, high > slack, f"an entry of {name} beyond its bound by", high, bound)

    def _dense(self, first: int, h: int, upload: Upload, before: np.ndarray) -> None:
        n, y = self.length * self.facts.steps, float(self.facts.y_max[h - 1])
        d, m = self.layout.dim, len(upload.b)
        if self.layout.packing == "dense":
            square = unpack(upload.gram, d, self.layout.packing)
            skew = np.abs(square - square.transpose(0, 2, 1)).max(axis=(1, 2))
            self._fail(first, h, skew > self.tolerance * n, "asymmetry of gram", skew, "0")
        episodes, small = self._total, self.tolerance
        final, model = h == self.layout.horizon, self._base(h)
        seen, close = np.empty((FIGURES, m)), np.zeros(m, np.bool_)
        close[self._signallers(first, m, h)] = True
        if h not in self._weights:  # the same for every cohort
            self._weights[h] = weights(model, self._where)
        last = self.last[first : first + m]
        last.setflags(write=False)
        examine(
            upload.gram, before, upload.b, last, model,
            self._weights[h], self._where, small * n, small * episodes, small, final,
            self._most(math.inf), close, seen,
        )  # fmt: skip
        worst = seen.max(axis=1).tolist()
        if not math.isfinite(worst[SUM]):
            self._finite(first, h, upload)
        if not worst[TRACE] <= n * (1.0 + small):
            wrong = ~(seen[TRACE] <= n * (1.0 + small))
            self._fail(first, h, wrong, "trace of gram", seen[TRACE], f"at most {n}")
        if n < d or worst[SHAKY]:
            self._positive(first, h, upload.gram)
        self._energy(first, h, seen[ENERGY], worst[ENERGY], episodes * y * y, "bᵀG⁺b")
        self._energy(first, h, seen[STEP], worst[STEP], n, "ΔbᵀΛ⁺Δb")
        near = max(1e-7, small * d) * n
        if self.facts.simplex and not max(worst[MOST] - n, worst[LEAST] + n) <= near:
            wrong = ~(np.abs(seen[MOST] - n) <= near)
            self._fail(first, h, wrong, "1ᵀΛ1", seen[MOST], f"{n}: features sum to one")
        if self.facts.nonnegative or self.facts.simplex:
            slack = small * episodes * y
            if worst[DEPTH] > slack:
                wrong = seen[DEPTH] > slack
                self._fail(first, h, wrong, "smallest entry of b", -seen[DEPTH], "at least 0")
            if final:
                least = (upload.b - self.last[first : first + m]).min(axis=1)
                name = "smallest entry of increment of b"
                self._fail(first, h, least < -slack, name, least, "at least 0")
        if close.any():
            base = unpack(model, d, self.layout.packing)
            self._ratios(first, h, seen[GROWTH], float(np.linalg.eigvalsh(base)[0]))

    def _positive(self, first: int, h: int, gram: np.ndarray) -> None:
        """λ_min(Λ^loc) ≥ −tol·n and rank Λ^loc ≤ n; `gram` is packed, (m, P)."""
        n, d, m = self.length * self.facts.steps, self.layout.dim, len(gram)
        if n >= d:
            least = np.linalg.eigvalsh(unpack(gram, d, self.layout.packing))[:, 0]
            wrong, bound = least < -self.tolerance * n, "at least 0"
            self._fail(first, h, wrong, "smallest eigenvalue of gram", least, bound)
            return
        small = max(RANK_TOLERANCE, self.tolerance) * n
        rank, rest = np.zeros(m, np.int64), np.zeros(m)
        reveal(gram, self._where, n, small, rank, rest)
        self._fail(first, h, rank > n, "rank of gram", rank, f"at most {n}")
        bound = "0: gram is not positive"
        self._fail(first, h, rest > small * (1.0 + 1e-6), "remainder of gram", rest, bound)

    def _energy(self, first: int, h: int, energy: np.ndarray, worst: float, most: float,
                name: str) -> None:  # fmt: skip
        """bᵀG⁺b ≤ t·y²; NaN where there is no factor to find it with."""
        limit = most * (1.0 + 1e-6)
        if not worst <= limit:
            self._fail(first, h, ~(energy <= limit), name, energy, f"at most {most:g}")

    def _ratios(self, first: int, h: int, ratio: np.ndarray, least: float) -> None:
        """log det(Λ + Λ^loc)/det Λ against the trigger; least = λ_min(Λ)."""
        least_ratio = self._threshold(self.length)
        named = np.zeros(len(ratio), np.bool_)
        named[self._signallers(first, len(ratio), h)] = True
        short = named & (np.maximum(ratio, 0.0) < least_ratio - 1e-6)
        if self.facts.waits:  # what it signalled for waits, because few episodes reached the step
            short &= ratio > 1e-6
        bound = f"at least {least_ratio:.9g}: it signalled here"
        self._fail(first, h, short, "log ratio of determinants", ratio, bound)
        most = self._most(least)
        bound = f"below {most:.9g}: it would have signalled before"
        self._fail(first, h, ratio > most, "log ratio of determinants", ratio, bound)

    def _signallers(self, first: int, agents: int, h: int) -> list[int]:
        """Positions of those who named this step when they signalled."""
        return [a - first for a in self._named.get(h, ()) if first <= a < first + agents]

    def _most(self, least: float) -> float:
        """The largest log ratio of someone who did not signal an episode before."""
        n, trigger = self.length, self.facts.trigger
        if self.reading or n <= trigger.floor(self.t) or self.facts.overshoot != "cut":
            return math.inf
        if self.t + n - 1 > trigger.latest:  # signals so late are left to the end of the run
            return math.inf
        return self._threshold(n - 1) + self.facts.steps * math.log1p(1.0 / least) + 1e-6

    def _threshold(self, n: int) -> float:
        """The log ratio at which an agent signals after n episodes of this round."""
        rule = self.facts.trigger.rule(self.t)
        return min(rule.log_gamma - math.log(n), rule.log_cap)

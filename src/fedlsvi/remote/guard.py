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

`Bounds` says how these read for what protects a contribution and how it travels:

    steps share Λ       an episode puts H vectors into it: n and t are then numbers of steps; Λ^loc
                        and the determinant come with h = H alone
    sums of M agents    one agent that played M·n episodes; shares, counts of episodes and who
                        signalled cannot be checked any more (docs/privacy.md)
    own features        Λ^loc is what a round adds to a Schur complement of all sums: tr Λ^loc ≤ t,
                        n behind b is no whole number, Σy² ≤ t·y_max², and neither b's increments
                        nor determinants can be checked
    one trip            each step is as the last: nothing follows u_h = Σφr. N_h = Σφ e_{x'}ᵀ has
                        |N_ix| and |Σ_x N_ix| ≤ √(n Λ_ii) (Cauchy and Schwarz: N sums n entries of
                        φ), N ≥ 0 where no feature is negative, N·1 = counts where they are one-hot
    noise               a lawful Λ is indefinite then and counts negative: what is left are bounds
                        on single entries, n for Λ, u and N, and t·y_max for b, and 16 standard
                        deviations more

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

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import read_only, unpack
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
from fedlsvi.remote.bounds import TOLERANCE, Bounds
from fedlsvi.remote.contribution import Contribution
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

RANK_TOLERANCE = 1e-7
"""What counts as zero when a rank is computed, per episode."""

ALL_AGENTS = -1
"""Stands for the number of an agent where nobody can tell whose fault it is."""


class Refusal(MessageRefused):
    """A message that no honest agent could have sent.

    Attributes:
        agent, round, step: Where it came from; step 0 where it belongs to no step, `ALL_AGENTS`
            for a sum over agents or the server's own model.
        field, value, bound: What was wrong, and what is allowed.
    """

    code = "impossible-message"

    def __init__(self, agent: int, round_: int, h: int, name: str, value: object, bound: str):
        self.agent, self.round, self.step = agent, round_, h
        self.field, self.value, self.bound = name, value, bound
        who = "all agents together" if agent == ALL_AGENTS else f"agent {agent}"
        where = f"{who}, round {round_}" + (f", step {h}" if h else "")
        super().__init__(f"{where}: {name} is {value}, must be {bound}")


@dataclass
class Guard:
    """The checks, and what they remember of each agent, or of their sum.

    Attributes:
        gram: (H, M, P), or (1, M, P) where steps share Λ: Gram matrices over all rounds; M is 1 for
            sums of all agents.
        last: (1, M, d), b_H of the round before; in one trip (H, M, d) or (1, M, d), Σφr.
        upto: (H, M), the last episode of the last upload, not zero.
        t: The last episode of the round before.
        round: The round under way, 1-based, where logs are round 0; it grows when the round's last
            model is sent.
        length: Episodes of the round under way, once it has stopped.
        logged: Episodes of logs in an agent's sums before this round.
        reading: Whether this is the round of the logs.
        exploiting: Whether the run has ended and all pass backward once more, without Λ^loc.
    """

    layout: Layout
    bounds: Bounds
    gram: np.ndarray = field(init=False)
    last: np.ndarray = field(init=False)
    upto: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        size, P = self.layout, self.layout.packed
        rows = size.n_agents if self.bounds.summed == 1 else 1
        self.gram = np.zeros((size.matrices, rows, P))
        self.last = np.zeros((size.matrices if self.bounds.trip else 1, rows, size.dim))
        self.upto = np.zeros((size.horizon, rows), np.int64)
        self.t, self.round, self.length = 0, 0 if self.bounds.logged else 1, 0
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
                self.logged, self.reading = self.bounds.logged if t > 0 else 0, False
            case Exploit():
                self.length, self.exploiting = 0, True
            case Model(h=h, w=w, gram=gram) if self.exploiting:
                self._check_model(h, w, gram)
            case Explore(limit=limit):
                self._requested += limit
            case Stop(t=t):
                self.length, self.reading = t - self.t, t == self.t
                if self.reading:
                    self.length = self.bounds.logged
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
        if self.bounds.noise is not None:  # which knows no such bound
            return
        w = read_only(w[: self.layout.dim])
        energy = quadratic(w, gram if gram.size else self._base(h), self._where)
        seen = self.layout.n_agents * self.bounds.steps * self._episodes
        most = seen * float(self.bounds.y_max[h - 1]) ** 2
        most += 0.0 if self.bounds.prior is None else float(self.bounds.prior[h - 1])
        if not energy <= most * (1.0 + 1e-6) + TOLERANCE:
            raise Refusal(
                ALL_AGENTS, self.round, h, "wᵀΛw of the new model", energy, f"at most {most:g}"
            )

    @property
    def _episodes(self) -> int:
        """Of an agent at most, with this round and its log."""
        return self.t + self.logged + self.length

    @property
    def _fresh(self) -> int:
        """Vectors that this round puts into one Gram matrix of a contribution at most."""
        return self.length * self.bounds.each

    @property
    def _seen(self) -> int:
        """The same of all rounds."""
        return self._episodes * self.bounds.each

    def _base(self, h: int) -> np.ndarray:
        """Λ_h of the model in force, (P,)."""
        model: np.ndarray = self._model[min(h, len(self._model)) - 1]
        return model

    # what agents send

    def signal(self, first: int, agents: int, signal: Signal) -> None:
        """Check a signal of the cohort of agents first … first + agents − 1."""
        if signal.t == 0 and len(signal.agents) == 0:
            return
        trigger, episodes = self.bounds.trigger, self.bounds.episodes
        longest = episodes - self.t
        if self.bounds.overshoot == "cut":
            longest = min(longest, trigger.longest(self.t))
        if self._requested:
            longest = min(longest, self._requested)
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
        lawful = (signal.steps == 0) if signal.t == episodes else (signal.steps > 0)
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
            if step > 0:  # the one that all steps share comes with step H
                h = self.layout.horizon if self.layout.stationary else step
                self._named.setdefault(h, []).append(agent)

    def check(self, first: int, part: Contribution) -> None:
        """Refuse what no agents from `first` on could contribute; changes nothing."""
        rows = slice(first, first + len(part.b))
        if self.bounds.waits and (t := int(self.upto[part.h - 1, rows].min())) < self.t:
            self.since(t)._check(first, part)
        else:
            self._check(first, part)

    def _check(self, first: int, part: Contribution) -> None:
        if (size := part.gram.shape[1]) != (agreed := self.gram_size(part.h)):
            raise self._refusal(first, part.h, "size of gram", size, f"{agreed}")
        if self.bounds.noise is not None:
            self._entries(first, part)
            return
        rows = slice(first, first + len(part.b))
        if self.bounds.trip:
            part = part._replace(b=read_only(self._last(part.h)[rows] + part.b))
        before = self.gram[min(part.h, len(self.gram)) - 1, rows]
        before.setflags(write=False)  # like all that a message holds: one kind for the kernels
        if not size or self.layout.packing != "packed":  # a packed one is summed in passing
            self.form(first, part)
        if not size:
            self._response(first, part, before)
        elif self.layout.packing == "diagonal":
            self._diagonal(first, part, before)
        else:
            self._dense(first, part, before)
        if part.moments is not None:
            self._squares(first, part.h, part.moments)
        for i, table in enumerate(part.following):
            if part.moments is not None:
                self._arrivals(first + i, part.h, table[self.layout.dim :], part.moments[i])
            self._next_states(first + i, part.h, table[: self.layout.dim], part.gram[i])

    def check_fit(self, first: int, upload: Upload) -> None:
        """Refuse a fit that no targets have, or where none was agreed. It decides nothing but what
        the summary says, so what is possible is not narrowed further."""
        agreed = len(upload.b) if self.exploiting and self.bounds.fits else 0
        if upload.fit.shape != (agreed, FIT):
            size = len(upload.fit)
            raise self._refusal(first, upload.h, "rows of fit", size, f"{agreed}")
        n, total, squares, off, residual = upload.fit.T
        most, y = float(self.t), float(self.bounds.y_max[upload.h - 1])
        for name, value, least, largest in (
            ("n", n, 0.0, most), ("Σy", total, 0.0, n * y), ("Σy²", squares, 0.0, n * y * y),
            ("(Σε)²", off**2, 0.0, n * residual), ("Σε²", residual, 0.0, np.inf),
        ):  # fmt: skip
            slack = 1e-6 * (1.0 + np.abs(value))
            wrong = ~((value >= least - slack) & (value <= largest + slack)) | np.isinf(value)
            self._fail(first, upload.h, wrong, f"{name} of fit", value, "what targets can have")

    def gram_size(self, h: int) -> int:
        """Scalars of the Gram matrix in an upload of step h that is due now."""
        return 0 if self.exploiting else self.layout.gram_size(h)

    def form(self, first: int, part: Contribution) -> None:
        """Check only that a contribution is finite."""
        behind = () if part.moments is None else (("moments", part.moments),)
        for name, array in (("gram", part.gram), ("b", part.b), *behind):
            if not math.isfinite(array.sum()) and not (finite := np.isfinite(array)).all():
                i, *place = np.argwhere(~finite)[0].tolist()
                where = ", ".join(map(str, place))
                value = float(array[i, *place])
                raise self._refusal(first + i, part.h, f"{name}[{where}]", value, "finite")

    def accept(self, first: int, part: Contribution) -> None:
        """Take note of a contribution of agents from `first` on that passed, or was withdrawn."""
        if self.exploiting:  # the same data
            return
        rows = slice(first, first + len(part.b))
        gram = gram_of(self.gram, part.h, self.layout.horizon)[rows]
        gram += part.gram
        if self.bounds.noise is not None:  # nothing else to know
            return
        # whose increments still wait cannot be seen in a sum
        if self.bounds.waits and self.bounds.summed == 1 and not self.reading:
            heard = np.flatnonzero(part.gram.any(axis=1)) + first
            self.upto[part.h - 1, heard] = self.t + self.length
        last = self._last(part.h)[rows]
        if self.bounds.trip:
            last += part.b
        elif part.h == self.layout.horizon:
            last[:] = part.b

    def since(self, t: int) -> Guard:
        """These checks for a cohort whose last accepted upload was at episode t, or −1 before the
        logs: its increments cover several rounds, and it need not have signalled in those that it
        missed."""
        late = copy(self)
        late.t, late.length = t, self.t + self.length - t
        if t < 0:
            late.t, late.length, late.logged = 0, self.t + self.length + self.logged, 0
        noise = self.bounds.noise
        noise = None if noise is None else replace(noise, away=True)
        late.bounds = replace(self.bounds, overshoot="keep", noise=noise)
        return late

    @property
    def span(self) -> tuple[int, int]:
        """The last episodes of the round before, and of the one under way; 0 of the round of the
        logs, and −1 before that."""
        if self.bounds.logged and self.round == 0:
            return -1, 0
        return self.t, self.t + self.length

    @property
    def lasting(self) -> bool:
        """Whether no later round corrects what is sent now: in the last one, and in the pass."""
        return self.exploiting or self.span[1] >= self.bounds.episodes

    def contributed(self, first: int, agents: int, h: int) -> np.ndarray:
        """(agents, P), all that these agents brought into Λ_h. Where steps share it, it counts as
        that of step H and is empty before."""
        rows: np.ndarray = gram_of(self.gram, h, self.layout.horizon)[first : first + agents]
        return rows

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        if self.bounds.noise is not None:  # of noisy sums only what may have to be taken out
            return {} if self.bounds.summed > 1 else {"guard.gram": self.gram}
        arrays = {"guard.gram": self.gram, "guard.last": self.last}
        return arrays | {"guard.upto": self.upto} if self.bounds.waits else arrays

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        if self.bounds.noise is None or self.bounds.summed == 1:
            self.gram[:] = arrays["guard.gram"]
        if self.bounds.noise is None:
            self.last[:] = arrays["guard.last"]
            if self.bounds.waits:
                self.upto[:] = arrays["guard.upto"]
        self.t, self.round, self.logged = t, k + 1, self.bounds.logged

    # the checks

    def _refusal(self, agent: int, h: int, name: str, value: object, bound: str) -> Refusal:
        """Of a contribution of this agent, or of a sum, where nobody knows whose fault it is."""
        if self.bounds.summed > 1:
            agent, name = ALL_AGENTS, f"{name} (in the sum over all sites)"
        return Refusal(agent, self.round, h, name, value, bound)

    def _fail(self, first: int, h: int, wrong: np.ndarray, name: str, value: np.ndarray,
              bound: str) -> None:  # fmt: skip
        """Raise for the first agent for which `wrong` holds."""
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise self._refusal(first + i, h, name, float(value[i]), bound)

    def _last(self, h: int) -> np.ndarray:
        """(M, d) of step h of those that accumulate."""
        last: np.ndarray = self.last[min(h, len(self.last)) - 1]
        return last

    def _entries(self, first: int, part: Contribution) -> None:
        """All that can be said under noise: how large an entry may be."""
        noise, h, m = self.bounds.noise, part.h, len(part.b)
        assert noise is not None
        most = self._fresh + noise.increment(self.round + (self.bounds.logged > 0))
        response = most
        if not self.bounds.trip:
            response = self._seen * self.bounds.target(h) + noise.response(h)
        name = "u" if self.bounds.trip else "b"
        for what, array, limit in (("Λ", part.gram, most), (name, part.b, response)):
            self._bounded(first, h, what, array.reshape(m, -1), limit)
        for i, table in enumerate(part.following):
            self._bounded(first + i, h, "N", table.reshape(1, -1), most)

    def _bounded(self, first: int, h: int, what: str, array: np.ndarray, most: float) -> None:
        worst = np.abs(array).max(axis=1, initial=0.0)
        wrong = ~(worst <= most)  # NaN too
        self._fail(first, h, wrong, f"an entry of {what}", worst, f"at most {most:g}")

    def _squares(self, first: int, h: int, moments: np.ndarray) -> None:
        """0 ≤ n, and 0 ≤ Σy² ≤ n·y²; in one trip Σr² of the round."""
        squares, n = moments.T
        trip, y = self.bounds.trip, self.bounds.target(h)
        most = float(self._fresh if trip else self._seen)
        slack = self.bounds.tolerance * (1.0 + most) * y * y
        whole = (np.abs(n - np.rint(n)) <= slack) | self.bounds.eliminated
        wrong = ~((n >= -slack) & (n <= most + slack) & whole)
        self._fail(first, h, wrong, "number of targets", n, f"a whole number up to {most:g}")
        name = "Σr²" if trip else "Σy²"
        targets = most if self.bounds.eliminated else n
        wrong = ~((squares >= -slack) & (squares <= targets * y * y + slack))
        self._fail(first, h, wrong, name, squares, f"from 0 to {y * y:g} times their number")

    def _explained(self, first: int, part: Contribution, energy: np.ndarray) -> None:
        """bᵀG⁺b ≤ Σy²: no regression explains more than there is. In one trip the sums are those
        of one round, and G is of all."""
        if part.moments is None or self.bounds.trip:
            return
        squares = part.moments[:, 0]
        slack = 1e-6 * (1.0 + squares) + self.bounds.tolerance * self._seen
        bound = "at most Σy² beside it"
        self._fail(first, part.h, ~(energy <= squares + slack), "bᵀG⁺b", energy, bound)

    def _arrivals(self, agent: int, h: int, rows: np.ndarray, moments: np.ndarray) -> None:
        """Σr e_{x'} and Σe_{x'} of one agent's round against Σr² and n."""
        paid, arrivals = rows
        slack = self.bounds.tolerance * (1.0 + self._fresh)
        lost = abs(float(arrivals.sum() - moments[1]))
        if not lost <= slack:
            raise self._refusal(agent, h, "Σe_{x'}·1 − n", lost, "0: every visit leads somewhere")
        beyond = float(np.maximum(-paid, paid - arrivals).max())
        if not beyond <= slack:
            raise self._refusal(agent, h, "Σr e_{x'} beyond its bound by", beyond, "at most 0")
        more = float(moments[0] - paid.sum())
        if not more <= slack:
            raise self._refusal(agent, h, "Σr² − Σr", more, "at most 0: rewards are at most 1")

    def _next_states(self, agent: int, h: int, table: np.ndarray, gram: np.ndarray) -> None:
        """N_h of one agent against its Λ_h."""
        square = gram[self._where]
        visits = square if square.ndim == 1 else square.diagonal()
        slack = self.bounds.tolerance * self._fresh + 1e-12
        most = np.sqrt(self._fresh * np.maximum(visits, 0.0) + slack) + slack
        row = table.sum(axis=1)
        worst = float(np.max(np.maximum(np.abs(table).max(axis=1), np.abs(row)) - most))
        if not worst <= slack:
            raise self._refusal(agent, h, "an entry of N beyond its bound by", worst, "at most 0")
        positive = self.bounds.nonnegative or self.bounds.simplex
        if positive and (least := float(table.min())) < -slack:
            raise self._refusal(agent, h, "smallest entry of N", least, "at least 0")
        if self.layout.packing == "diagonal" and (off := float(np.abs(row - visits).max())) > 0.0:
            raise self._refusal(agent, h, "N·1 − counts", off, "0: every visit leads somewhere")

    def _response(self, first: int, part: Contribution, total: np.ndarray) -> None:
        """b of a step whose Gram matrix came before it: `total`, the round included."""
        h, b, y = part.h, part.b, self.bounds.target(part.h)
        if self.layout.packing == "diagonal":
            self._range(first, h, b, y * total, "b")
            self._explained(first, part, (b * b / np.maximum(total, 1.0)).sum(axis=1))
            return
        seen, m, small = self._seen, len(b), self.bounds.tolerance
        figures, nobody = np.empty((FIGURES, m)), np.zeros(m, np.bool_)
        examine(
            read_only(np.zeros_like(total)), total, b, b, self._base(h),
            np.zeros(self._where.shape), self._where, small * self._fresh, small * seen, small,
            False, math.inf, nobody, figures,
        )  # fmt: skip
        self._energy(first, h, figures[ENERGY], figures[ENERGY].max(), seen * y * y, "bᵀG⁺b")
        self._explained(first, part, figures[ENERGY])
        if self.bounds.nonnegative or self.bounds.simplex:
            wrong = figures[DEPTH] > small * seen * y
            self._fail(first, h, wrong, "smallest entry of b", -figures[DEPTH], "at least 0")

    def _diagonal(self, first: int, part: Contribution, before: np.ndarray) -> None:
        """One-hot features: Λ^loc counts visits, each step one."""
        h, gram, b = part.h, part.gram, part.b
        n, y = self._fresh, self.bounds.target(h)
        least, off = gram.min(axis=1), np.abs(gram - np.rint(gram)).max(axis=1)
        self._fail(first, h, least < 0.0, "smallest count", least, "at least 0")
        self._fail(first, h, off > 0.0, "fraction in a count", off, "0: counts are integers")
        visits = gram.sum(axis=1)
        wrong = visits > n if self.bounds.partial else visits != n
        self._fail(first, h, wrong, "sum of counts", visits, f"{n}, the round's episodes")
        self._range(first, h, b, y * (before + gram), "b")
        self._explained(first, part, (b * b / np.maximum(before + gram, 1.0)).sum(axis=1))
        if self._accumulates(h):
            last = self._last(h)[first : first + len(b)]
            self._range(first, h, b - last, gram, "increment of b")
        base = self._base(h)
        self._ratios(first, h, np.log1p(gram / base).sum(axis=1), float(base.min()))

    def _range(self, first: int, h: int, b: np.ndarray, most: np.ndarray, name: str) -> None:
        """0 ≤ b_i ≤ most_i."""
        slack = self.bounds.tolerance * (1.0 + most.max(axis=1))
        low, high = b.min(axis=1), (b - most).max(axis=1)
        self._fail(first, h, low < -slack, f"smallest entry of {name}", low, "at least 0")
        bound = "at most y_max times the count beside it"
        self._fail(first, h, high > slack, f"an entry of {name} beyond its bound by", high, bound)

    def _accumulates(self, h: int) -> bool:
        """Whether no value follows a reward in b_h, so that its increments are bounded too."""
        last = h == self.layout.horizon and not self.bounds.eliminated
        return self.bounds.trip or last

    def _dense(self, first: int, part: Contribution, before: np.ndarray) -> None:
        h, n, y = part.h, self._fresh, self.bounds.target(part.h)
        d, m, small = self.layout.dim, len(part.b), self.bounds.tolerance
        if self.layout.packing == "dense":
            square = unpack(part.gram, d, self.layout.packing)
            skew = np.abs(square - square.transpose(0, 2, 1)).max(axis=(1, 2))
            self._fail(first, h, skew > small * n, "asymmetry of gram", skew, "0")
        total, final, model = self._seen, self._accumulates(h), self._base(h)
        figures, close = np.empty((FIGURES, m)), np.zeros(m, np.bool_)
        close[self._signallers(first, m, h)] = True
        if h not in self._weights:  # the same for every cohort
            self._weights[h] = weights(model, self._where)
        last = self._last(h)[first : first + m]
        last.setflags(write=False)
        examine(
            part.gram, before, part.b, last, model, self._weights[h], self._where, small * n,
            small * total, small, final, self._most(math.inf), close, figures,
        )  # fmt: skip
        worst = figures.max(axis=1).tolist()
        if not math.isfinite(worst[SUM]):
            self.form(first, part)
        brought = total if self.bounds.eliminated else n
        if not worst[TRACE] <= brought * (1.0 + small):
            wrong = ~(figures[TRACE] <= brought * (1.0 + small))
            self._fail(first, h, wrong, "trace of gram", figures[TRACE], f"at most {brought}")
        if n < d or worst[SHAKY]:
            self._positive(first, h, part.gram)
        self._energy(first, h, figures[ENERGY], worst[ENERGY], total * y * y, "bᵀG⁺b")
        self._energy(first, h, figures[STEP], worst[STEP], n, "ΔbᵀΛ⁺Δb")
        self._explained(first, part, figures[ENERGY])
        near = max(1e-7, small * d) * n
        if self.bounds.simplex and not max(worst[MOST] - n, worst[LEAST] + n) <= near:
            wrong = ~(np.abs(figures[MOST] - n) <= near)
            self._fail(first, h, wrong, "1ᵀΛ1", figures[MOST], f"{n}: features sum to one")
        if self.bounds.nonnegative or self.bounds.simplex:
            slack = small * total * y
            if worst[DEPTH] > slack:
                wrong = figures[DEPTH] > slack
                self._fail(first, h, wrong, "smallest entry of b", -figures[DEPTH], "at least 0")
            if final:
                least = (part.b - last).min(axis=1)
                name = "smallest entry of increment of b"
                self._fail(first, h, least < -slack, name, least, "at least 0")
        if close.any():
            base = unpack(model, d, self.layout.packing)
            self._ratios(first, h, figures[GROWTH], float(np.linalg.eigvalsh(base)[0]))

    def _positive(self, first: int, h: int, gram: np.ndarray) -> None:
        """λ_min(Λ^loc) ≥ −tol·n and rank Λ^loc ≤ n; `gram` is packed, (m, P)."""
        n, d, m = self._fresh, self.layout.dim, len(gram)
        if n >= d:
            least = np.linalg.eigvalsh(unpack(gram, d, self.layout.packing))[:, 0]
            wrong, bound = least < -self.bounds.tolerance * n, "at least 0"
            self._fail(first, h, wrong, "smallest eigenvalue of gram", least, bound)
            return
        small = max(RANK_TOLERANCE, self.bounds.tolerance) * n
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
        if self.bounds.waits:  # what it signalled for waits, because few episodes reached the step
            short &= ratio > 1e-6
        bound = f"at least {least_ratio:.9g}: it signalled here"
        self._fail(first, h, short, "log ratio of determinants", ratio, bound)
        most = self._most(least)
        bound = f"below {most:.9g}: it would have signalled before"
        self._fail(first, h, ratio > most, "log ratio of determinants", ratio, bound)

    def _signallers(self, first: int, agents: int, h: int) -> list[int]:
        """Positions of those who named this step when they signalled; a sum shows nobody's."""
        if self.bounds.summed > 1 or self.bounds.eliminated:
            return []
        return [a - first for a in self._named.get(h, ()) if first <= a < first + agents]

    def _most(self, least: float) -> float:
        """The largest log ratio of someone who did not signal an episode before."""
        n, trigger = self.length, self.bounds.trigger
        if self.reading or n <= trigger.floor(self.t) or self.bounds.overshoot != "cut":
            return math.inf
        if self.bounds.summed > 1 or self.bounds.eliminated:
            return math.inf
        if self.t + n - 1 > trigger.latest:  # signals so late are left to the end of the run
            return math.inf
        return self._threshold(n - 1) + self.bounds.steps * math.log1p(1.0 / least) + 1e-6

    def _threshold(self, n: int) -> float:
        """The log ratio at which an agent signals after n episodes of this round."""
        rule = self.bounds.trigger.rule(self.t)
        return min(rule.log_gamma - math.log(n), rule.log_cap)

"""Everything that may cross the boundary between agents and server, and nothing else.

This module is the privacy boundary. No type here can carry a state, an action, a reward or a
feature vector: an agent says that it has learned enough (`Signal`), sends sums over its history
(`Upload`), and is told when to stop (`Stop`) and what the common model is (`Start`, `Model`).

A message between the server and a cohort of m agents has a leading agent axis where agents differ
and counts as m messages. `scalars` is the paper's unit (integers or reals); a scalar is 8 bytes.
Arrays in messages are read-only, and senders leave them alone: a message never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, packed_size

SCALAR_BYTES = 8

KEY_SCALARS = 4
"""A public key of X25519 has 32 bytes."""


def _freeze(one: np.ndarray, other: np.ndarray) -> None:
    # write=False, by position: with the keyword, which NumPy's stubs want, it takes twice as long
    one.setflags(False)  # type: ignore[call-arg]
    other.setflags(False)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class Start:
    """Server → agents, once (Algorithm 1, line 3): {w_h, Λ_h, γ, β, T}.

    Steps that share a Gram matrix have one row. When a run is resumed, it carries the model and the
    episode t from which the agents continue.
    """

    w: np.ndarray  # (H, d)
    gram: np.ndarray  # (H, P) or (1, P)
    gamma: float
    beta: float
    episodes: int
    t: int = 0

    def __post_init__(self) -> None:
        _freeze(self.w, self.gram)

    @property
    def scalars(self) -> int:
        """Per agent: H(P + d) + 3."""
        return self.w.size + self.gram.size + 3

    def model(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """(w_h, Λ_h) of step h, as a `Model` carries them."""
        return self.w[h - 1], gram_of(self.gram, h, len(self.w))


@dataclass(frozen=True, slots=True)
class Explore:
    """Server → agents, where agents cannot call: explore at most `limit` more episodes."""

    limit: int
    scalars: int = 1


@dataclass(frozen=True, slots=True)
class Signal:
    """Agent → server (Algorithm 2, lines 18 and 22): synchronise, my episode counter is t.

    From a cohort: the agents that fire at the cohort's first firing episode t, and for each the
    lowest step h whose determinant did (0 when the episode budget is reached). t = 0: none fires.
    """

    t: int
    agents: np.ndarray  # (s,) numbers of the agents that fire
    steps: np.ndarray  # (s,)

    def __post_init__(self) -> None:
        _freeze(self.agents, self.steps)

    @property
    def scalars(self) -> int:
        """A flag and a counter for each agent that signals; silence is free."""
        return 2 * len(self.agents)

    @classmethod
    def silence(cls) -> Signal:
        """No agent of the cohort fires yet."""
        nobody = np.empty(0, np.int64)
        return cls(0, nobody, nobody)


@dataclass(frozen=True, slots=True)
class Stop:
    """Server → agents (Algorithm 1, line 6): the round ends at episode t."""

    t: int
    scalars: int = 1


@dataclass(frozen=True, slots=True)
class NextStates:
    """What one agent's round adds to N_h = Σφ e_{x'}ᵀ of steps 1 … H−1, (H−1, d, S): all of it, or
    where fewer than half of the cells are set only those.

    `cells` are their places in ascending order, and empty where all are sent.
    """

    cells: np.ndarray  # (n,) or (0,)
    values: np.ndarray  # (n,) or ((H−1)·d·S,)

    def __post_init__(self) -> None:
        _freeze(self.cells, self.values)

    @classmethod
    def shorter(cls, cells: np.ndarray, values: np.ndarray, size: int) -> NextStates:
        """In the shorter of the two forms; cells are ascending, and `size` is their number."""
        if 2 * cells.size < size:
            return cls(cells, values)
        whole = np.zeros(size)
        whole[cells] = values
        return cls(np.empty(0, np.int64), whole)

    @staticmethod
    def sizes(cells: np.ndarray, size: int) -> np.ndarray:
        """Scalars of the shorter form, for each number of cells that are set out of `size`."""
        return np.where(2 * cells < size, 2 * cells, size)

    @property
    def scalars(self) -> int:
        """Twice the cells that are set, or all cells."""
        return self.cells.size + self.values.size

    @property
    def whole(self) -> bool:
        """Whether all cells are sent."""
        return self.values.size > self.cells.size

    @property
    def places(self) -> np.ndarray | slice:
        """Where the values belong."""
        return slice(0, self.values.size) if self.whole else self.cells


@dataclass(frozen=True, slots=True)
class Upload:
    """Agent → server (Algorithm 2, line 27), from each agent of a cohort: (Λ_h^loc, b_h) of step h.
    Where steps share a Gram matrix it travels with step H, and P = 0 at the others.

    With one trip per synchronisation (finite states) it goes from step 1 on through all steps: what
    the round adds to Λ_h, u_h = Σφr and N_h = Σφ e_{x'}ᵀ, from which b_h = u_h + N_h V_{h+1}.
    """

    h: int
    gram: np.ndarray  # (m, P); of all steps (m, H, P), or (m, 1, P) where they share it
    b: np.ndarray  # (m, d); u of all steps (m, H, d), or (m, 1, d)
    following: tuple[NextStates, ...] = ()  # of all steps and m agents
    fit: np.ndarray = field(default_factory=lambda: np.empty((0, FIT)))
    """(m, 5) in the pass after the last round, where nothing hides what an agent sends: how well
    the model that explores fits the targets of step h alone; (0, 5) elsewhere."""

    def __post_init__(self) -> None:
        _freeze(self.gram, self.b)
        self.fit.setflags(False)  # type: ignore[call-arg]

    @property
    def every_step(self) -> bool:
        """Whether it goes through all steps."""
        return self.gram.ndim == 3

    @property
    def scalars(self) -> int:
        """m(P + d); of all steps mH(P + d), and N; with the fit 5m more."""
        sums = self.gram.size + self.b.size + self.fit.size
        return sums + sum(n.scalars for n in self.following)


@dataclass(frozen=True, slots=True)
class Models:
    """Server → agents with one trip per synchronisation: the models of all steps."""

    w: np.ndarray  # (H, d)
    gram: np.ndarray  # (H, P), or (1, P) where steps share it; (0, P) after `Exploit`

    def __post_init__(self) -> None:
        _freeze(self.w, self.gram)

    @property
    def scalars(self) -> int:
        """Per agent: H(P + d), or P + Hd."""
        return self.w.size + self.gram.size

    def model(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """(w_h, Λ_h) of step h, as a `Model` carries them."""
        return self.w[h - 1], gram_of(self.gram, h, len(self.w))


@dataclass(frozen=True, slots=True)
class MaskedUpload:
    """Site → server with secure sums: Σ over its agents of (Λ_h^loc, b_h) in fixed point, plus
    masks that cancel in the sum over all sites. Alone it is as good as noise. With one trip per
    synchronisation it holds the increments of all steps, with h = 1."""

    h: int
    words: np.ndarray  # (P + d,) uint64, or (H(P + d) + (H−1)dS,)

    def __post_init__(self) -> None:
        self.words.setflags(write=False)

    @property
    def scalars(self) -> int:
        """P + d, or H(P + d) + (H−1)dS, however many agents the site has."""
        return self.words.size


@dataclass(frozen=True, slots=True)
class SummedUpload:
    """Cohort → server, in one process and in one trip: the sum over its agents of what an `Upload`
    of every step would hold, in fixed point. Each agent counts as if it had sent its own."""

    h: int
    words: np.ndarray  # (H(P + d) + (H−1)dS,) uint64
    alike: int
    """Scalars of Λ and u of one agent."""
    following: np.ndarray  # scalars of N of each agent that takes part

    def __post_init__(self) -> None:
        _freeze(self.words, self.following)

    @property
    def scalars(self) -> int:
        """What the agents would have sent one by one."""
        return len(self.following) * self.alike + int(self.following.sum())


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """Server → sites, before the first round of secure sums: give me your public key."""

    scalars: int = 0


@dataclass(frozen=True, slots=True)
class SiteKey:
    """Site → server: its public key of X25519, and the proof that it is this site's."""

    public: bytes
    proof: bytes

    @property
    def scalars(self) -> int:
        """The key; its proof authenticates, as the header of a frame does, and is not counted."""
        return KEY_SCALARS


@dataclass(frozen=True, slots=True)
class Member:
    """One site of a roster: its agents, its public key and the proof."""

    first: int
    agents: int
    public: bytes
    proof: bytes


@dataclass(frozen=True, slots=True)
class Roster:
    """Server → sites: the keys of all sites that take part, in the order of agents."""

    members: tuple[Member, ...]

    @property
    def scalars(self) -> int:
        """One key for each site."""
        return KEY_SCALARS * len(self.members)


@dataclass(frozen=True, slots=True)
class Model:
    """Server → agents (Algorithm 1, line 12): the step's model (w_h, Λ_h); an empty Λ_h is that of
    step h + 1."""

    h: int
    w: np.ndarray  # (d,)
    gram: np.ndarray  # (P,)

    def __post_init__(self) -> None:
        _freeze(self.w, self.gram)

    @property
    def scalars(self) -> int:
        """Per agent: P + d."""
        return self.w.size + self.gram.size


@dataclass(frozen=True, slots=True)
class Keep:
    """Server → agents, between rounds: make what you hold after episode t survive a restart."""

    t: int
    scalars: int = 1


@dataclass(frozen=True, slots=True)
class Exploit:
    """Server → agents, after the last round: once more backward over all you have seen, with this
    β. Each `Upload` and `Model` that follows has an empty Gram matrix. In one trip the server has
    the sums, so that nothing is uploaded and `Models` follow."""

    beta: float
    scalars: int = 1


Request = Start | Exploit | Explore | Stop | Model | Models | Keep | KeyRequest | Roster
Reply = Signal | Upload | SummedUpload | MaskedUpload | SiteKey | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes that both sides agree on before they speak."""

    n_agents: int
    horizon: int
    dim: int
    packing: Packing
    stationary: bool = False
    secure: bool = False
    """Whether sites upload masked sums, and exchange keys first."""
    states: int = 0
    """Columns of N where a synchronisation takes one trip: the states, and behind them the end of
    episodes where logs have one. 0 where it goes step by step."""
    noisy: bool = False
    """Whether the bonus knows the noise: Σy² and n travel behind b_h, and σ̂_h behind w_h."""
    packed: int = field(init=False)
    """P, the scalars of one Gram matrix."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", packed_size(self.dim, self.packing))

    @property
    def matrices(self) -> int:
        """Gram matrices of a model: one where steps share it, else H."""
        return 1 if self.stationary else self.horizon

    @property
    def responses(self) -> int:
        """Scalars of b_h, or u_h, and what is behind it; rows of N_h."""
        return self.dim + 2 * self.noisy

    @property
    def weights(self) -> int:
        """Scalars of w_h and what is behind it."""
        return self.dim + self.noisy

    def gram_size(self, h: int) -> int:
        """Scalars of the Gram matrix in a message of step h."""
        shared = self.stationary and h < self.horizon
        return 0 if shared else self.packed

    def upload_words(self, h: int) -> int:
        """Scalars of one masked upload of step h, and of one agent's that leaves nothing out."""
        if not self.states:
            return self.gram_size(h) + self.responses
        return self.matrices * (self.packed + self.responses) + self.cells

    def reply_to(self, request: Request) -> type:
        """The kind of message that answers a request."""
        match request:
            case Start() | Keep() | Roster() | Models() | Model(h=1):
                return type(None)
            case Explore():
                return Signal
            case KeyRequest():
                return SiteKey
            case Exploit() if self.states:
                return type(None)
        return MaskedUpload if self.secure else Upload

    def step_after(self, request: Request) -> int:
        """The step whose sums answer a request; 1 where those of all steps do."""
        if self.states:
            return 1
        return request.h - 1 if isinstance(request, Model) else self.horizon

    @property
    def tables(self) -> int:
        """Tables of next states: one where steps share it, else those of steps 1 … H−1."""
        return 1 if self.stationary else self.horizon - 1

    @property
    def cells(self) -> int:
        """(H−1)·d·S, or d·S where steps share it: the entries of N."""
        return self.tables * self.responses * self.states


def gram_of(grams: np.ndarray, h: int, horizon: int) -> np.ndarray:
    """The part of Gram matrices (H, …, P) that belongs to a message of step h. Where steps share
    one, (1, …, P), it belongs to step H and the others have an empty part."""
    if not len(grams):  # the pass after the last round leaves them out
        return np.empty(0)
    own: np.ndarray = grams[h - 1 if len(grams) == horizon else 0]
    return own if len(grams) == horizon or h == horizon else own[..., :0]

"""What a server may ask of a site next, and with which numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core.statistics import factorise, unpack
from fedlsvi.core.trigger import Trigger
from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.protocol.agent import Experience
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    Layout,
    Model,
    Models,
    Request,
    Start,
    Stop,
)
from fedlsvi.protocol.transport import layout

LARGEST = 1e100
"""No number of a model is larger."""


@dataclass
class RequestOrder:
    """What a server may ask next, and with which numbers.

        Start → Explore … → Stop → Model H … Model 1 → (Keep) → Explore …
                                        at the end → Exploit → Model H … Model 1 → (Keep)
        where agents have logs, the run begins with Start → Stop(0) → Model H … Model 1

    b_h sums over an agent's whole history under a V_{h+1} that the server chose. A server that
    could ask for it with one V after another would learn which states were seen. So each step of a
    synchronisation is answered once, and what was agreed before the run (γ, β, T) holds whatever a
    message says.

    Attributes:
        parameters: The numbers that were agreed on.
        due: The step whose model must come next; 0 between synchronisations.
        exploiting: Whether the pass after the last round has begun; it comes once.
        unread: Whether the round of the logs is next; it comes once too.
    """

    parameters: Parameters
    due: int = 0
    exploiting: bool = False
    unread: bool = False
    layout: Layout = field(init=False)
    trigger: Trigger = field(init=False)

    def __post_init__(self) -> None:
        self.layout, self.trigger = layout(self.parameters), self.parameters.trigger

    def check(self, message: Request, world: Experience) -> None:
        """Raise MessageRefused for a request that cannot come next; changes nothing."""
        T = self.parameters.episodes
        if isinstance(message, Start):
            self._check_start(message)
        elif isinstance(message, Model):
            if message.h != self.due or self.parameters.exchange == "one-trip":
                refuse("model-out-of-order", f"a Model of step {message.h}: {self._expected()}")
            size = 0 if self.exploiting else self.layout.gram_size(message.h)
            if message.gram.size != size:
                refuse("bad-model", f"a Model with {message.gram.size} scalars of Λ, not {size}")
            _finite(w=message.w, gram=message.gram)
        elif isinstance(message, Models):
            if self.due != self.parameters.horizon or self.parameters.exchange != "one-trip":
                refuse("model-out-of-order", f"Models of all steps: {self._expected()}")
            _finite(w=message.w, gram=message.gram)
        elif self.due > 0:
            refuse("request-out-of-order", f"a {type(message).__name__}: {self._expected()}")
        match message:
            case Exploit(beta=beta) if not self._may_exploit(beta, world):
                refuse("bad-exploit", f"asked for a pass with β = {beta!r} after {world.t} of {T}")
            case Stop(t=0) if self.unread:
                return
            case Explore() | Stop() if self.unread:
                refuse("logs-first", f"a {type(message).__name__} before the round of the logs")
            case Explore(limit=limit) if not 0 <= limit <= T - world.t:
                refuse(
                    "bad-limit",
                    f"asked to explore {plural(limit, 'episode')} after {world.t} of {T}",
                )
            case Stop(t=t) if not world.t < t <= T or not self.trigger.ends(world.t, t):
                refuse("bad-stop", f"a round after episode {world.t} cannot stop at episode {t}")
            case Keep(t=t) if world.length or world.t != t:
                refuse("bad-keep", f"asked for a snapshot at episode {t}, within a round")

    def follow(self, message: Request) -> None:
        """This request was carried out."""
        match message:
            case Start(t=t):
                self.due, self.exploiting = 0, False
                self.unread = self.parameters.logged > 0 and t == 0
            case Stop():
                self.due, self.unread = self.parameters.horizon, False
            case Exploit():
                self.due, self.exploiting = self.parameters.horizon, True
            case Model(h=h):
                self.due = h - 1
            case Models():
                self.due = 0

    def _may_exploit(self, beta: float, world: Experience) -> bool:
        """At the end of the run, once, and with the β that was agreed on."""
        p = self.parameters
        over = world.t == p.episodes and world.length == 0
        return over and p.exploit and beta == -p.pessimism and not self.exploiting

    def _expected(self) -> str:
        return f"the model of step {self.due} is next" if self.due else "a round is under way"

    def _check_start(self, start: Start) -> None:
        p = self.parameters
        for name, agreed in (("gamma", p.gamma), ("beta", p.bonus), ("episodes", p.episodes)):
            sent = getattr(start, name)
            if sent != agreed:
                refuse(f"other-{name}", f"a Start with {name} {sent!r}, agreed was {agreed!r}")
        if not 0 <= start.t <= p.episodes:
            refuse("bad-start", f"a Start at episode {start.t} of {p.episodes}")
        _finite(w=start.w, gram=start.gram)
        try:
            for gram in start.gram:
                factorise(unpack(gram, p.dim, p.packing))
        except InvalidInput as error:
            refuse("bad-start", f"a Start with this model: {error}")


def refuse(code: str, why: str) -> NoReturn:
    """Refuse a request."""
    raise MessageRefused(why, code=code) from None


def _finite(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        # so large that some values would overflow: which ones would depend on what was seen
        if not (np.abs(array) <= LARGEST).all():
            refuse("model-not-finite", f"{name} of a model is not finite, or beyond {LARGEST:g}")

"""What a server may ask of a site next, and with which numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.ridge import factorise
from fedlsvi.core.statistics import unpack
from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.protocol.agent import Experience
from fedlsvi.protocol.messages import Explore, Keep, Model, Models, Request, Start, Stop


@dataclass
class RequestOrder:
    """What a server may ask next, and with which numbers.

        Start → Explore … → Stop → Model H … Model 1 → (Keep) → Explore …

    b_h sums over an agent's whole history under a V_{h+1} that the server chose. A server that
    could ask for it with one V after another would learn which states were seen. So each step of a
    synchronisation is answered once, and what was agreed before the run (γ, β, T) holds whatever a
    message says.

    Attributes:
        parameters: The numbers that were agreed on.
        due: The step whose model must come next; 0 between synchronisations.
    """

    parameters: Parameters
    due: int = 0

    def check(self, message: Request, world: Experience) -> None:
        """Raise MessageRefused for a request that cannot come next; changes nothing."""
        T = self.parameters.episodes
        if isinstance(message, Start):
            self._check_start(message)
        elif isinstance(message, Model):
            if message.h != self.due or self.parameters.exchange == "one-trip":
                refuse("model-out-of-order", f"a Model of step {message.h}: {self._expected()}")
            _finite(w=message.w, gram=message.gram)
        elif isinstance(message, Models):
            if self.due != self.parameters.horizon or self.parameters.exchange != "one-trip":
                refuse("model-out-of-order", f"Models of all steps: {self._expected()}")
            _finite(w=message.w, gram=message.gram)
        elif self.due > 0:
            refuse("request-out-of-order", f"a {type(message).__name__}: {self._expected()}")
        match message:
            case Explore(limit=limit) if not 0 <= limit <= T - world.t:
                refuse("bad-limit", f"asked to explore {limit} episodes after {world.t} of {T}")
            case Stop(t=t) if not world.t < t <= T or not self.parameters.trigger.ends(world.t, t):
                refuse("bad-stop", f"a round after episode {world.t} cannot stop at episode {t}")
            case Keep(t=t) if world.length or world.t != t:
                refuse("bad-keep", f"asked for a snapshot at episode {t}, within a round")

    def follow(self, message: Request) -> None:
        """This request was carried out."""
        match message:
            case Start():
                self.due = 0
            case Stop():
                self.due = self.parameters.horizon
            case Model(h=h):
                self.due = h - 1
            case Models():
                self.due = 0

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
        if not np.isfinite(array).all():
            refuse("model-not-finite", f"{name} of a model is not finite")

"""What a server may ask of agents next, and with which numbers.

    Start → Explore … → Stop → Model H … Model 1 → (Keep) → Explore …

b_h sums over an agent's whole history under a V_{h+1} that the server chose. One that was asked for
with V after V would give away which states were seen; so each step of a synchronisation is answered
once, and what was agreed before the run (γ, β, T) holds whatever a message says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.ridge import factorise
from fedlsvi.core.statistics import unpack
from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.protocol.agent import Experience
from fedlsvi.protocol.messages import Explore, Keep, Model, Request, Start, Stop


@dataclass
class Order:
    """Where agents are between two requests."""

    parameters: Parameters
    due: int = 0
    """The step whose model must come next; 0 between synchronisations."""

    def check(self, message: Request, world: Experience) -> None:
        """Refuse what cannot come next; nothing has changed then."""
        T = self.parameters.episodes
        if isinstance(message, Start):
            self._check_start(message)
        elif isinstance(message, Model):
            if message.h != self.due:
                raise MessageRefused(f"a Model of step {message.h}: {self._awaited()}")
            _finite(w=message.w, gram=message.gram)
        elif self.due > 0:
            raise MessageRefused(f"a {type(message).__name__}: {self._awaited()}")
        match message:
            case Explore(limit=limit) if not 0 <= limit <= T - world.t:
                raise MessageRefused(f"asked to explore {limit} episodes after {world.t} of {T}")
            case Stop(t=t) if not world.t < t <= T:
                raise MessageRefused(f"a round cannot stop at episode {t}")
            case Keep(t=t) if world.length or world.t != t:
                raise MessageRefused(f"asked for episode {t} in the middle of a round")

    def follow(self, message: Request) -> None:
        """This was carried out."""
        match message:
            case Start():
                self.due = 0
            case Stop():
                self.due = self.parameters.horizon
            case Model(h=h):
                self.due = h - 1

    def _awaited(self) -> str:
        return f"the model of step {self.due} is next" if self.due else "a round is under way"

    def _check_start(self, start: Start) -> None:
        p = self.parameters
        for name in ("gamma", "beta", "episodes"):
            found, agreed = getattr(start, name), getattr(p, name)
            if found != agreed:
                raise MessageRefused(f"a Start with {name} {found!r}, agreed was {agreed!r}")
        if not 0 <= start.t <= p.episodes:
            raise MessageRefused(f"a Start at episode {start.t} of {p.episodes}")
        _finite(w=start.w, gram=start.gram)
        try:
            for gram in start.gram:
                factorise(unpack(gram, p.dim, p.packing))
        except InvalidInput as error:
            raise MessageRefused(f"a Start whose {error}") from None


def _finite(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise MessageRefused(f"{name} of a model is not finite")

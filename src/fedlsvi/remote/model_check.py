"""What a site knows about a lawful model, before it plays by it.

A model that no sums can have led to is a question: with Λ huge everywhere but at one pair, an agent
signals if and only if it visits that pair. By public numbers alone (M agents, T episodes, λ, and
‖φ‖ ≤ 1, so that a vector adds at most 1 to a trace):

    every run          Λ_h has no diagonal entry below λ, and tr Λ_h ≤ λd + M·T·H; it begins at λI
    secure, no noise   Λ_h − Λ_h of the round before ⪰ 0, and its trace is at most M·n for a round
                       of n episodes (M·t after t episodes, where agents eliminate coefficients of
                       their own); wᵀΛw ≤ M·t·y², y the largest target

The second line says that Λ only grows, by no more than the round can have brought. A private run's
Λ is made of noisy sums and has the first lower bound only; its rounds end on a public schedule, so
that no model decides about a signal.

Nothing here looks at what this site has seen. That Λ contains the site's own share would be a
lawful bound too, but a model that is refused for it is an answer: with one model after another, a
server could find every entry of that share by bisection.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from scipy.linalg.lapack import dpotrf

from fedlsvi.config import Parameters
from fedlsvi.core.fixed_point import rounding
from fedlsvi.core.statistics import identity, pack, unpack
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.messages import Model, Models, Request, Start, gram_of

SLACK = 1e-9
"""For the rounding of doubles, relative to the largest entry."""


class PublicBounds:
    """The bounds of every run, which need nothing but the numbers in force.

    Args:
        parameters: The numbers that were agreed on.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = self.parameters = parameters
        self._begins = pack(identity(p.dim, p.lam, p.packing), p.packing)
        self._diagonal = _diagonal(p)
        self._most = p.dim * p.lam + float(p.n_agents) * p.horizon * (p.episodes + p.logged)

    def check_start(self, start: Start) -> None:
        """The model of a run that begins is λI, unless it was agreed to begin with another."""
        if start.t == 0 and not self.parameters.prior:
            p = self.parameters
            w, noise = np.split(start.w, [p.dim], axis=1)
            began = not noise.size or (noise[:, 0] == 0.5 * p.ceilings).all()
            if w.any() or not began or (start.gram != self._begins).any():
                _refuse("a Start at episode 0 with another model than w = 0, Λ = λI")
        else:
            self.check(start.gram)

    def check(self, grams: np.ndarray) -> None:
        """Λ (…, P) is at least λ and at most what all episodes can bring."""
        p = self.parameters
        if not grams.size:
            return
        entries = grams[..., self._diagonal]
        slack = SLACK * max(1.0, float(entries.max()))
        if not (entries >= p.lam - slack).all():
            _refuse(f"Λ has a diagonal entry of {entries.min():g}, below λ = {p.lam:g}")
        if p.prior or p.privacy is not None:  # what it began with, or its noise, is in it
            return
        trace = entries.sum(axis=-1)
        if not (trace <= self._most * (1.0 + SLACK)).all():
            _refuse(f"the trace of Λ is {np.max(trace):g}, at most {self._most:g} is possible")


class GrowthCheck:
    """The bounds of secure sums without noise, which need the model in force.

    Args:
        parameters: The numbers that were agreed on.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = self.parameters = parameters
        self._gram = np.zeros((p.matrices, 0))  # in force, packed
        # an entry of the sum is rounded once for each agent; of a norm, d of them
        self._slack = p.dim * rounding(p.scale_bits, p.n_agents)
        self._diagonal = _diagonal(p)
        self._y = np.array(p.targets)

    def check(self, message: Request, played: int, length: int) -> None:
        """Refuse a model that cannot follow the one in force.

        Args:
            message: What the server sends.
            played: Episodes that an agent has played, with the round that ends.
            length: Episodes of that round; 0 where it is that of the logs.
        """
        p = self.parameters
        if isinstance(message, Model):
            if message.gram.size:
                self._check_growth(message.h, message.gram, played, length)
            gram = message.gram if message.gram.size else self._row(self._gram, message.h)
            self._check_energy(message.h, message.w, gram, played)
        elif isinstance(message, Models):
            for h in range(p.horizon, 0, -1):
                if (gram := gram_of(message.gram, h, p.horizon)).size:
                    self._check_growth(h, gram, played, length)
                row = self._row(message.gram if message.gram.size else self._gram, h)
                self._check_energy(h, message.w[h - 1], row, played)

    def _check_growth(self, h: int, gram: np.ndarray, played: int, length: int) -> None:
        p, growth = self.parameters, gram - self._row(self._gram, h)
        slack = self._slack + SLACK * p.dim * max(1.0, float(np.abs(gram).max()))
        most = self._seen(length or p.logged)
        waits = p.min_round > 1 and not p.stationary  # increments may have, since any round
        if waits or p.own_features:
            most = self._seen(played + p.logged)
        trace = float(growth[self._diagonal].sum())
        if not trace <= most + slack:
            _refuse(f"Λ of step {h} grows by {trace:g}, but the round brings at most {most:g}")
        if not _positive(unpack(growth, p.dim, p.packing), slack):
            _refuse(f"Λ of step {h} lacks what it had")

    def _check_energy(self, h: int, w: np.ndarray, gram: np.ndarray, played: int) -> None:
        p = self.parameters
        if p.prior:  # whose targets nobody here knows
            return
        matrix, w = unpack(gram, p.dim, p.packing), w[: p.dim]
        energy = float(w @ (matrix * w if matrix.ndim == 1 else matrix @ w))
        most = self._seen(played + p.logged) * float(self._y[h - 1]) ** 2
        if not energy <= most * (1.0 + 1e-6) + 1e-6:
            _refuse(f"wᵀΛw of step {h} is {energy:g}, at most {most:g} is possible")

    def _seen(self, episodes: int) -> float:
        """The most vectors in one Gram matrix of all agents after so many episodes."""
        p = self.parameters
        return float(p.n_agents * (p.horizon // p.matrices) * episodes)

    def _row(self, grams: np.ndarray, h: int) -> np.ndarray:
        """Λ_h of the models of all steps, packed."""
        row: np.ndarray = grams[min(h, self.parameters.matrices) - 1]
        return row

    def follow(self, message: Request) -> None:
        """The agents play by this model now."""
        match message:
            case Start(gram=gram) | Models(gram=gram) if gram.size:
                self._gram = gram.copy()
            case Model(h=h, gram=gram) if gram.size:
                self._gram[min(h, len(self._gram)) - 1] = gram


def _diagonal(p: Parameters) -> np.ndarray:
    """Where the entries of the diagonal stand in a packed matrix."""
    return np.flatnonzero(pack(identity(p.dim, 1.0, p.packing), p.packing))


def _positive(matrix: np.ndarray, slack: float) -> bool:
    """Whether a matrix, or the diagonal of one, is positive semidefinite up to this."""
    if matrix.ndim == 1:
        return bool((matrix >= -slack).all())
    _, info = dpotrf(matrix + slack * np.eye(len(matrix)), lower=1)
    return bool(info == 0)


def _refuse(why: str) -> NoReturn:
    raise MessageRefused(f"a model that no sums lead to: {why}", code="bad-model") from None

"""e_a ⊗ ψ(x) with ψ on a box [low, high]: Fourier basis, tiles, polynomials.

States are mapped to x̂ = (x − low)/(high − low) ∈ [0, 1]^s and clipped to it. By default the box is
that of the environment, if it has a finite one.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import abstractmethod
from typing import Any, Self

import numpy as np

from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable
from fedlsvi.features.blocks import BlockFeatures
from fedlsvi.features.validation import count, fits, numbers
from fedlsvi.features.widths import VAST

MOST = 20_000
"""The largest D: a finer grid over the state's dimensions is a mistake."""

Bound = float | list[float] | None


class BoxFeatures(BlockFeatures):
    """What the maps on a box share: the box, and the spec.

    Args:
        low: Lower bound of the states, one number or one per dimension; None is the environment's.
        high: Upper bound, likewise.
    """

    def __init__(self, low: Bound = None, high: Bound = None) -> None:
        self.low = None if low is None else numbers("low", low)
        self.high = None if high is None else numbers("high", high)

    def bind(self, env: Bindable) -> Self:
        """The map on the states of `env`; bounds left out are the environment's."""
        ready = copy.copy(self)
        for side in ("low", "high"):
            own = getattr(env, side, None)
            if getattr(self, side) is None and own is not None:
                setattr(ready, side, np.asarray(own, np.float64))
        return BlockFeatures.bind(ready, env)

    def prepare(self, state_dim: int) -> int:
        for side, default in (("low", 0.0), ("high", 1.0)):
            found = getattr(self, side)
            array = fits(side, np.asarray(default if found is None else found), state_dim)
            if not (np.abs(array) < VAST).all():
                raise InvalidFeatures(
                    f"{side} of the states is {array.tolist()}, which is not a finite bound: give "
                    f"{side}=, one number or {state_dim}",
                    code="box-unbounded",
                )
            setattr(self, side, array)
        self.ends: tuple[np.ndarray, np.ndarray] = self.low, self.high  # type: ignore[assignment]
        if not (self.ends[1] > self.ends[0]).all():
            raise InvalidFeatures(
                f"high must lie above low, got low={self.low} and high={self.high}", code="bad-high"
            )
        width = self.size(state_dim)
        if width > MOST:
            raise InvalidFeatures(
                f"{self.kind} features would have more than {MOST} entries per action on "
                f"{state_dim} dimensions: choose coarser ones, or random Fourier features",
                code="too-many-features",
            )
        return width

    @abstractmethod
    def size(self, state_dim: int) -> int:
        """Fix ψ and return D."""

    def unit(self, states: np.ndarray) -> np.ndarray:
        """x̂ (n, s) ∈ [0, 1]^s."""
        low, high = self.ends
        scaled: np.ndarray = (states - low) / (high - low)
        return np.clip(scaled, 0.0, 1.0, out=scaled)

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        box = {"low": _plain(self.low), "high": _plain(self.high)}
        given = {key: value for key, value in box.items() if value is not None}
        return {"name": self.kind, "params": self.parameters() | given}

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The parameters other than the box, ready for JSON."""


class FourierBasis(BoxFeatures):
    """ψ_c(x) = cos(π c·x̂)/√D for c ∈ {0..order}^s (Konidaris, Osentoski & Thomas 2011).

    ‖ψ‖ ≤ 1 because every cosine is.

    Args:
        order: The largest entry of c.
        coupled: Keep only the c with at most so many non-zero entries, so that D stays small where
            the state has many dimensions; None keeps all.
        low, high: As `BoxFeatures`.
    """

    kind = "fourier-basis"

    def __init__(
        self, order: int = 3, coupled: int | None = None, low: Bound = None, high: Bound = None
    ) -> None:
        super().__init__(low, high)
        self._given = {"order": order, "coupled": coupled, "low": low, "high": high}
        self.order = count("order", order)
        self.coupled = None if coupled is None else count("coupled", coupled)

    def size(self, state_dim: int) -> int:
        most = state_dim if self.coupled is None else min(self.coupled, state_dim)
        width: int = sum(math.comb(state_dim, n) * self.order**n for n in range(most + 1))
        if width > MOST:
            return width  # `prepare` refuses it
        rows = [np.zeros(state_dim)]
        for n in range(1, most + 1):
            for places in itertools.combinations(range(state_dim), n):
                for c in itertools.product(range(1, self.order + 1), repeat=n):
                    row = np.zeros(state_dim)
                    row[list(places)] = c
                    rows.append(row)
        self.C = np.pi * np.array(rows)
        return width

    def psi(self, states: np.ndarray) -> np.ndarray:
        psi: np.ndarray = np.cos(self.unit(states) @ self.C.T) / np.sqrt(len(self.C))
        return psi

    def psi_names(self, inputs: list[str]) -> list[str]:
        angles = [" + ".join(f"{c}·{x}" for c, x in zip(row, inputs, strict=True) if c)
                  for row in np.rint(self.C / np.pi).astype(int).tolist()]  # fmt: skip
        return [f"cos(π({angle}))" if angle else "1" for angle in angles]

    def parameters(self) -> dict[str, Any]:
        own = {"order": self.order}
        return own if self.coupled is None else own | {"coupled": self.coupled}


class TileFeatures(BoxFeatures):
    """Tile coding: in each of `tilings` shifted grids, 1/√tilings at the tile that holds x̂.

    Grid k is shifted by k/tilings of a tile times the odd numbers 1, 3, 5, … over the dimensions,
    so that tilings do not line up along a diagonal. ‖ψ‖ = 1. One tiling is a plain grid.

    Args:
        tilings: How many grids.
        tiles: Tiles per dimension of a grid, one number or one per dimension.
        low, high: As `BoxFeatures`.
    """

    kind = "tiles"
    nonnegative = True

    def __init__(
        self,
        tilings: int = 4,
        tiles: int | list[int] = 6,
        low: Bound = None,
        high: Bound = None,
    ) -> None:
        super().__init__(low, high)
        self._given = {"tilings": tilings, "tiles": tiles, "low": low, "high": high}
        self.tilings = count("tilings", tilings)
        listed = tiles if isinstance(tiles, list | tuple | np.ndarray) else [tiles]
        if not len(listed):
            raise InvalidFeatures(
                "tiles is empty: give one number, or one per state dimension", code="bad-tiles"
            )
        self.tiles = np.array([count("tiles", n) for n in listed])
        self.simplex = self.tilings == 1

    def size(self, state_dim: int) -> int:
        tiles = self.tiles if self.tiles.size > 1 else self.tiles[0]
        self._across = fits("tiles", tiles, state_dim)
        # a shifted grid needs one more tile in every dimension
        self._counts = self._across + (self.tilings > 1)
        odd = 2 * np.arange(state_dim) + 1
        self._shifts = (np.arange(self.tilings)[:, None] * odd / self.tilings) % 1.0
        self._steps = np.append(self._counts[::-1].cumprod()[::-1][1:], 1)
        self._width: int = math.prod(self._counts.tolist())
        return self.tilings * self._width

    def psi(self, states: np.ndarray) -> np.ndarray:
        psi = np.zeros((len(states), self.tilings * self._width))
        place = self.unit(states) * self._across
        rows = np.arange(len(states))
        for k, shift in enumerate(self._shifts):
            tile = np.minimum((place + shift).astype(np.int64), self._counts - 1)
            psi[rows, k * self._width + tile @ self._steps] = 1.0 / np.sqrt(self.tilings)
        return psi

    def psi_names(self, inputs: list[str]) -> list[str]:
        places = itertools.product(*map(range, self._counts.tolist()))
        tiles = [", ".join(f"{x}:{i}" for x, i in zip(inputs, at, strict=True)) for at in places]
        return [f"tile {tile} of grid {k}" for k in range(self.tilings) for tile in tiles]

    def parameters(self) -> dict[str, Any]:
        tiles = self.tiles.tolist()
        return {"tilings": self.tilings, "tiles": tiles if len(tiles) > 1 else tiles[0]}


class PolynomialFeatures(BoxFeatures):
    """ψ: all monomials of 2x̂ − 1 ∈ [−1, 1]^s up to a total degree, divided by √D: ‖ψ‖ ≤ 1.

    Args:
        degree: The total degree.
        low, high: As `BoxFeatures`.
    """

    kind = "polynomial"

    def __init__(self, degree: int = 2, low: Bound = None, high: Bound = None) -> None:
        super().__init__(low, high)
        self._given = {"degree": degree, "low": low, "high": high}
        self.degree = count("degree", degree)

    def size(self, state_dim: int) -> int:
        width = math.comb(state_dim + self.degree, state_dim)
        if width > MOST:
            return width  # `prepare` refuses it
        exponents = itertools.chain.from_iterable(
            itertools.combinations_with_replacement(range(state_dim), n)
            for n in range(self.degree + 1)
        )
        self._factors = [list(one) for one in exponents]
        return width

    def psi(self, states: np.ndarray) -> np.ndarray:
        centred = 2.0 * self.unit(states) - 1.0
        psi = np.stack([centred[:, f].prod(axis=1) for f in self._factors], axis=1)
        psi /= np.sqrt(len(self._factors))
        return psi

    def psi_names(self, inputs: list[str]) -> list[str]:
        return ["·".join(inputs[i] for i in factors) or "1" for factors in self._factors]

    def parameters(self) -> dict[str, Any]:
        return {"degree": self.degree}


def _plain(array: np.ndarray | None) -> Any:
    return None if array is None else array.tolist()

"""Feature maps φ: a batch of n states → (n, A, d), with ‖φ(x,a)‖₂ ≤ 1.

A map may be made before the environment is known (`OneHot()`, a callable); `bind(env)` checks it
against the environment and returns the map to compute with. `resolve` takes whatever a caller gives
as features, and turns every map on a finite state space into a table.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Protocol

import numpy as np

from fedlsvi.checks import is_integer, plural
from fedlsvi.errors import InvalidFeatures

NORM_TOLERANCE = 1e-9
"""How far rounding may take a norm above 1."""

FLAGS = ("one_hot", "nonnegative", "simplex")


class Bindable(Protocol):
    """What a feature map needs to know of an environment. Finite ones also have `n_states`, others
    `state_dim`."""

    @property
    def n_actions(self) -> int: ...

    @property
    def name(self) -> str: ...

    def default_features(self) -> FeatureMap: ...


class FeatureMap(ABC):
    """φ(x,a) for every action of a batch of states.

    Attributes:
        dim: d; 0 until it is known.
        n_actions: A; 0 until it is known.
        state_dim: s, on continuous states; 0 until it is known.
        one_hot: Every φ(x,a) is a unit vector, so that ridge regression is counting.
        nonnegative: φ ≥ 0.
        simplex: φ ≥ 0 and Σᵢ φᵢ = 1.
        privileged: It was made with knowledge of the model that no learner has.
        fitted: It was made from observed states, about which it may say something.
        made_as: Name and parameters with which the registry made it, if a map has no `spec`.
    """

    dim: int = 0
    n_actions: int = 0
    state_dim: int = 0
    one_hot: bool = False
    nonnegative: bool = False
    simplex: bool = False
    privileged: bool = False
    fitted: bool = False
    made_as: dict[str, Any] | None = None
    _given: Mapping[str, Any] | None = None
    """The arguments of a constructor that keeps them in another form."""

    @abstractmethod
    def __call__(self, states: np.ndarray) -> np.ndarray:
        """φ of shape (n, A, d); states are int (n,) on finite spaces, float (n, s) otherwise."""

    def checked(self, states: np.ndarray) -> np.ndarray:
        """φ(states), (n, A, d); an error if sizes, norms or flags do not hold."""
        return check_batch(type(self).__name__, self, states, self(states))

    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        """Write φ(states) into `out` (n, A, d); fast maps override it."""
        out[...] = self.checked(states)

    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """φ(x,a) of one action (n,) per state, (n, d); `fill` has checked the states."""
        rows: np.ndarray = self(states)[np.arange(len(states)), actions]
        return rows

    def shared(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """ψ with φ(x,a) = e_a ⊗ ψ(x), states (n, s) → (n, d/A), where φ is of this form; such
        features are kept once per state and not for every action."""
        return None

    @abstractmethod
    def bind(self, env: Bindable) -> FeatureMap:
        """The map to compute with in `env`: itself or another, with `dim` and `n_actions` set."""

    def agreed(self) -> FeatureMap:
        """The map as parties use it that cannot ask one another: what it would take from its own
        environment beyond what it is told is the same for all."""
        return self

    def spec(self) -> dict[str, Any] | None:
        """Registered name and parameters, ready for JSON; None if no name makes it."""
        return self.made_as

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor as they were given, as scikit-learn asks for them."""
        if self._given is not None:
            return dict(self._given)
        own = signature(type(self)).parameters.values()
        named = [one.name for one in own if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        return {name: getattr(self, name) for name in named}

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """(d,) what each coordinate of a bound map is, in words.

        Args:
            input_features: Names of the numbers of a state; None is x0, x1, …
        """
        return np.array([f"φ{i}" for i in range(self.dim)], object)


class CallableFeatures(FeatureMap):
    """Any function from a batch of states to an (n, A, d) array.

    On a finite space the function is called once, on all states. On a continuous one its results
    are checked at every call, because they cannot be checked beforehand.

    Args:
        fn: The function.
        one_hot: Declares, for continuous states, the flag of `FeatureMap`; checked at every call.
        nonnegative: Likewise.
        simplex: Likewise.
    """

    def __init__(
        self,
        fn: Callable[[np.ndarray], Any],
        *,
        one_hot: bool = False,
        nonnegative: bool = False,
        simplex: bool = False,
    ) -> None:
        if not callable(fn):
            raise InvalidFeatures(
                f"features must be callable, got {type(fn).__name__}: "
                "give a function from n states to an (n, A, d) array",
                code="not-callable",
            )
        self.fn = fn
        self.one_hot = one_hot
        self.simplex = simplex or one_hot
        self.nonnegative = nonnegative or self.simplex

    def __call__(self, states: np.ndarray) -> np.ndarray:
        if self.dim and not len(states):
            return np.empty((0, self.n_actions, self.dim))
        return check_batch("features", self, states, self.fn(states))

    def checked(self, states: np.ndarray) -> np.ndarray:
        return self(states)

    def bind(self, env: Bindable) -> FeatureMap:
        if hasattr(env, "n_states"):
            from fedlsvi.features.tabular import tabulated

            return tabulated(self, env)
        bound = CallableFeatures(self.fn, one_hot=self.one_hot, simplex=self.simplex)
        bound.nonnegative = self.nonnegative
        states = probe_states(env)
        phi = as_features("features", self.fn(states)) if imagined(env) else bound(states)
        if phi.shape[1] != env.n_actions:
            raise InvalidFeatures(
                f"features have {plural(phi.shape[1], 'action')}, but {env.name} has "
                f"{env.n_actions}: return an (n, A, d) array with A = n_actions",
                code="bad-n_actions",
            )
        bound.n_actions, bound.dim = phi.shape[1:]
        bound.state_dim = int(getattr(env, "state_dim", 0))
        return bound


def unbound(what: str) -> InvalidFeatures:
    """The error of a map that computes before it knows its environment."""
    return InvalidFeatures(f"{what} features are not bound: call .bind(env) first", code="unbound")


def as_features(field: str, value: Any) -> np.ndarray:
    """The value as a float64 array (n, A, d) of finite numbers."""
    phi = _real(field, value)
    check_finite(field, phi)
    return phi


def _real(field: str, value: Any) -> np.ndarray:
    try:
        if np.iscomplexobj(value):
            raise TypeError
        phi = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidFeatures(
            f"{field} must be an array of real numbers, got {type(value).__name__}: "
            "give one of shape (S, A, d)",
            code="not-an-array",
        ) from None
    if phi.ndim != 3 or 0 in phi.shape:
        raise InvalidFeatures(
            f"{field} must have three axes (states, actions, d), got shape {np.shape(value)}",
            code="bad-shape",
        )
    return phi


def check_finite(field: str, phi: np.ndarray, states: np.ndarray | None = None) -> None:
    """Refuse NaN and ∞."""
    if not np.isfinite(phi).all():
        x, a, i = (int(k) for k in np.argwhere(~np.isfinite(phi))[0])
        raise InvalidFeatures(
            f"{field}[x={_state(x, states)}, a={a}, i={i}] is {phi[x, a, i]}: "
            "replace it by a finite number",
            code="not-finite",
        )


def check_batch(field: str, promised: FeatureMap, states: np.ndarray, value: Any) -> np.ndarray:
    """φ(states) as an array (n, A, d), checked: sizes, if known, finite numbers, norms, flags.

    Args:
        field: What errors call it.
        promised: The map, whose sizes and flags must hold.
        states: The batch.
        value: What the map returned for it.
    """
    n = len(states)
    if not n:
        return np.empty((0, promised.n_actions, promised.dim))
    phi = _real(field, value)
    expected = (n, *((promised.n_actions, promised.dim) if promised.dim else phi.shape[1:]))
    if phi.shape != expected:
        raise InvalidFeatures(
            f"{field} gave shape {phi.shape} for {plural(n, 'state')}, expected {expected}: "
            "always return (n, A, d) with the same d",
            code="bad-shape",
        )
    # one pass finds NaN, ∞ and long rows
    if not np.einsum("xai,xai->xa", phi, phi).max() <= 1.0:
        check_finite(field, phi, states)
        check_norms(field, phi, states)
    declared = tuple(getattr(promised, flag) for flag in FLAGS)
    # three more passes over φ, so only if a flag was declared
    found = flags(phi) if any(declared) else declared
    for flag, said, holds in zip(FLAGS, declared, found, strict=True):
        if said and not holds:
            raise InvalidFeatures(
                f"{flag}=True is declared for {field} but is not true: leave it out",
                code=f"not-{flag}",
            )
    return phi


def _state(x: int, states: np.ndarray | None) -> Any:
    """Row x in messages: the state itself, if states are vectors."""
    return x if states is None or states.ndim < 2 else reprlib.repr(states[x].tolist())


def largest_norm(phi: np.ndarray) -> tuple[float, int, int]:
    """max ‖φ(x,a)‖₂ of φ (n, A, d), and the (x, a) where it is reached."""
    squares = np.einsum("xai,xai->xa", phi, phi)
    x, a = divmod(int(squares.argmax()), phi.shape[1])
    return float(np.sqrt(squares[x, a])), x, a


def check_norms(field: str, phi: np.ndarray, states: np.ndarray | None = None) -> None:
    """Refuse a φ outside the unit ball."""
    norm, x, a = largest_norm(phi)
    if norm > 1.0 + NORM_TOLERANCE:
        raise InvalidFeatures(
            f"{field}[x={_state(x, states)}, a={a}] has norm {norm:.10g} > 1: divide by the "
            "largest norm, for example with fedlsvi.features.scale",
            code="norm-above-1",
        )


def flags(phi: np.ndarray) -> tuple[bool, bool, bool]:
    """(one_hot, nonnegative, simplex) of features (n, A, d)."""
    nonnegative = bool((phi >= 0.0).all())
    simplex = nonnegative and bool((np.abs(phi.sum(axis=-1) - 1.0) <= NORM_TOLERANCE).all())
    one_hot = simplex and bool(((phi == 0.0) | (phi == 1.0)).all())
    return one_hot, nonnegative, simplex


def probe_states(env: Any, n: int = 8) -> np.ndarray:
    """n initial states of a continuous environment, (n, s), always the same."""
    if hasattr(env, "probe"):
        first: np.ndarray = env.probe(n)
        return first
    u = np.repeat((np.arange(n) + 0.5)[:, None] / n, env.draws_at_reset, axis=1)
    states: np.ndarray = env.reset(u, np.arange(n))
    return states


def imagined(env: Any) -> bool:
    """Whether `probe_states` makes states up, so that norms mean nothing there."""
    return bool(getattr(env, "imagined", False))


def resolve(features: Any, env: Any) -> FeatureMap:
    """The bound feature map for what a caller gives.

    Args:
        features: None (the environment's own), a map, its registered name, an (S, A, d) array, or a
            callable on a batch of states.
        env: The environment.
    """
    if features is None:
        return _ready(env.default_features(), f"default_features() of {env.name}", env)
    from fedlsvi.features.tabular import TableFeatures, check_table_shape

    if isinstance(features, str):
        from fedlsvi.features.registry import make

        features = make(features)
    if isinstance(features, type):
        raise InvalidFeatures(
            f"features is the class {features.__name__}: give an instance, {features.__name__}()",
            code="features-not-made",
        )
    if isinstance(features, FeatureMap):
        bound = _ready(features.bind(env), f"{type(features).__name__}.bind", env)
        if bound.spec() is None:
            bound.made_as = features.made_as
        return bound
    if callable(features):
        return CallableFeatures(features).bind(env)
    if isinstance(features, np.ndarray) and features.ndim == 3:
        check_table_shape(features.shape, env)
    return TableFeatures(features).bind(env)


def _ready(bound: Any, source: str, env: Any) -> FeatureMap:
    """What `source` returned, checked; on finite states as a table."""
    if not isinstance(bound, FeatureMap):
        raise InvalidFeatures(
            f"{source} returned {_kind(bound)}: return a FeatureMap, such as self, with dim and "
            "n_actions set",
            code="bad-bind",
        )
    from fedlsvi.features.tabular import OneHot, TableFeatures, tabulated

    name = type(bound).__name__
    for size, wanted in (("dim", "the length d of φ(x,a)"), ("n_actions", f"{env.n_actions}")):
        value = getattr(bound, size)
        positive = is_integer(value) and value >= 1
        if not positive or (size == "n_actions" and value != env.n_actions):
            raise InvalidFeatures(
                f"{source} returned {name} with {size} = {value!r}: set {size} to {wanted} there",
                code=f"bad-{size}",
            )
    if isinstance(bound, TableFeatures):
        TableFeatures.bind(bound, env)  # checks its sizes
    elif isinstance(bound, OneHot):
        OneHot.bind(bound, env)
    if type(bound).__module__.startswith("fedlsvi.features."):
        return bound  # the tests run check_features on all of these
    if hasattr(env, "n_states"):
        return tabulated(bound, env)
    if not imagined(env):
        try_out(bound, probe_states(env))
    return bound


def try_out(phi: FeatureMap, states: np.ndarray) -> np.ndarray:
    """φ(states), (n, A, d), checked; a second call, `fill` and `chosen` must give the same."""
    name, kept = type(phi).__name__, states.copy()
    found = phi.checked(states).copy()
    if not np.array_equal(states, kept):
        raise InvalidFeatures(
            f"{name} modifies the states it is given: copy them first", code="states-changed"
        )
    if not alike(phi(states), found):
        raise InvalidFeatures(
            f"{name} gives different numbers when it is called again: make it depend on the state "
            "alone",
            code="not-a-function",
        )
    filled = np.full_like(found, np.nan)
    phi.fill(states, filled)
    actions = np.arange(len(states), dtype=np.int32) % phi.n_actions
    for method, given, wanted in (
        ("fill", filled, found),
        ("chosen", phi.chosen(states, actions), found[np.arange(len(states)), actions]),
    ):
        if given.shape != wanted.shape or not alike(given, wanted):
            raise InvalidFeatures(
                f"{name}.{method} and the map itself give different numbers: make them agree, or "
                f"leave {method} out",
                code=f"{method}-differs",
            )
    return found


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether features agree up to rounding."""
    return np.allclose(one, other, rtol=0.0, atol=NORM_TOLERANCE)


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__

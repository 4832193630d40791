"""Runs of a row of the matrix, and what the literal code says about them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fedlsvi import PEVI, FedLSVI
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.envs import as_environment, logged_worlds
from fedlsvi.envs.allowed import restrict
from fedlsvi.remote.evaluation import in_threads
from fedlsvi.remote.retry_policy import RetryPolicy
from literal import (
    Allowed,
    Array,
    LiteralRun,
    feature_lookup,
    literal_fed_lsvi,
    response,
    values_after,
)
from literal_gym import BlackBox
from literal_participation import there
from lossy import Lossy, between, lossy
from matrix.covering import Row
from patience import PATIENCE
from problems import Drift, bumps, deterministic, half, mask, one_hot_table
from recorded import recorded
from transports_over_frames import over_frames

M, T, SEED, LAM, BETA, GAMMA, OWN = 3, 16, 4, 0.7, 0.6, 5.0, 2
LOGGED = [7, 0, 6]
"""Episodes of the agents' logs beside players; the last agent has nothing else."""
AWAY = {"participation": 0.6}
SILENCE, CARRY = (7, 12), RetryPolicy(PATIENCE, 1, absent="carry")
FOLDER = tempfile.TemporaryDirectory()
PRIVACY, ROUNDS = {"epsilon": 40.0, "delta": 1e-5}, 4
ROOMS, DOORS, H = 4, 3, 3
transports: dict[int, Lossy] = {}
"""Of runs in which a site was silent, by the plan."""
POINTS = [np.array([np.cos(x), np.sin(x)]) for x in 2.0 * np.pi * np.arange(ROOMS) / ROOMS]


class Ring(gymnasium.Env[Any, Any]):
    """A ring of rooms in which some doors are shut, seen as numbers or as points of a circle. It
    never ends, so that its steps are alike.

    Args:
        vector: Whether rooms are points.
        masked: Whether doors are shut.
    """

    def __init__(self, vector: bool, masked: bool) -> None:
        self.vector, self.masked = vector, masked
        box: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.observation_space = box if vector else spaces.Discrete(ROOMS)
        self.action_space = spaces.Discrete(DOORS)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        info = {"action_mask": np.array(open_doors(self.x), np.int8)} if self.masked else {}
        what: Any = POINTS[self.x] if self.vector else self.x
        return what, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(ROOMS))
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        lucky = self.np_random.random() < (0.7 if (int(action) + self.x) % 2 else 0.4)
        self.x = (self.x + 1 + int(lucky)) % ROOMS
        what, info = self._seen()
        return what, float(lucky), False, False, info


def open_doors(x: int) -> list[bool]:
    """Which doors of a room are open: two at least."""
    return [(x + a) % DOORS != 0 for a in range(DOORS)]


def of_points(states: Array) -> Array:
    """Six features of a point, another length for each action: no ties."""
    both = np.concatenate([states, np.ones((len(states), 1))], axis=1) / np.sqrt(2.0)
    phi = np.zeros((len(states), DOORS, 9))
    for a in range(DOORS):
        phi[:, a, 3 * a : 3 * a + 3] = both * (1.0 - 0.1 * a)
    return phi


class Steady(Drift):
    """`Drift` whose pay does not depend on the step."""

    stationary = True

    def step(self, h: int, x: Array, a: Array, u: Array) -> tuple[Array, Array]:
        return super().step(1, x, a, u)


@dataclass(frozen=True)
class Source:
    """A problem as the library gets it, and as the reference does.

    Attributes:
        envs: What `learn` plays.
        worlds: What the reference plays.
        phi, features: Features of the reference and of `learn`.
        allowed: The actions of a step and state; None is all of them.
        options: More arguments of `learn`: logs.
        logs: The same for the reference.
    """

    envs: Any
    worlds: Any
    phi: Any
    features: Any = None
    allowed: Allowed | None = None
    options: dict[str, Any] | None = None
    logs: Any = None


def _in_table(table: Array) -> Allowed:
    return lambda h, x: np.flatnonzero(table[x]).tolist()


def _in_room(h: int, x: Any) -> list[int]:
    if isinstance(x, np.ndarray):
        x = round(float(np.arctan2(x[1], x[0])) * ROOMS / (2.0 * np.pi)) % ROOMS
    return list(range(DOORS)) if x == ROOMS else np.flatnonzero(open_doors(x)).tolist()


@cache
def source(name: str, masks: bool, stationary: bool) -> Source:
    """Where the agents of a row play, and what they recorded."""
    if name == "continuous":
        env = Steady(H, 0.1) if stationary else Drift(H, 0.1)
        env = restrict(env, half) if masks else env
        which = lambda h, x: np.flatnonzero(half(h, x[None])[0]).tolist()  # noqa: E731
        return Source(env, env, bumps(3, 5), bumps(3, 5), which if masks else None)
    if name in ("numbered", "vectors"):
        vector = name == "vectors"
        own: dict[str, Any] = {"allowed": "env"} if masks else {}
        env = as_environment(lambda: Ring(vector, masks), horizon=H, reward_range=(0.0, 1.0), **own)
        for_steps(env, stationary)
        box = BlackBox(lambda: Ring(vector, masks), (0.0, 1.0), None if vector else ROOMS)
        phi = of_points if vector else one_hot_table(ROOMS + 1, DOORS)
        return Source(env, box, phi, of_points if vector else None, _in_room if masks else None)
    problem = deterministic(3)
    table = mask(1, problem.one.n_states, problem.one.n_actions) if masks else None
    env = problem.one if table is None else restrict(problem.one, table)
    which = None if table is None else _in_table(table)
    if name == "table":
        return Source(env, env, problem.phi, None, which)
    episodes = LOGGED if name == "log-beside-players" else [9, 5, 7]
    data, steps = recorded(problem.one, episodes, H, problem.one.n_actions, allowed=which)
    envs = [env, env, None] if name == "log-beside-players" else env
    return Source(envs, env, problem.phi, problem.phi, which, {"data": data}, steps)


def with_own(made: Source) -> Any:
    """Its features, with more that are always zero."""
    if isinstance(made.phi, np.ndarray):
        return _with_zeros(made.phi)
    return lambda states: _with_zeros(made.phi(states))


def _with_zeros(phi: Array) -> Array:
    return np.concatenate([phi, np.zeros((*phi.shape[:2], OWN))], axis=2)


def for_steps(env: Any, stationary: bool) -> None:
    """A black box cannot say by itself whether its steps are alike."""
    if stationary:
        env.stationary = True


def run(row: Row, on_schedule: bool = False) -> Any:
    """The library's run, or estimate; on schedule, rounds end where those of a private run do."""
    made = source(row.source, row.masks, row.stationary)
    options = dict(made.options or {})
    if row.head in ("pevi", "evaluation"):
        return _offline(row, made, options["data"])
    settings: dict[str, Any] = {
        "lam": LAM, "beta": BETA, "preset": "paper", "stationary": row.stationary,
        "diversity": 0.3 if row.diversity else 0.0, "exchange": row.exchange,
        "aggregation": row.aggregation, "policy": "exploit" if row.head == "exploit" else "explore",
    }  # fmt: skip
    if row.private:
        settings |= {"privacy": PRIVACY, "rounds": ROUNDS}
    elif on_schedule:
        settings |= {"gamma": 1.0, "cap": "off", "rounds": ROUNDS}
    else:
        settings["gamma"] = GAMMA
    settings |= AWAY if row.away else {}
    settings |= {"own_features": OWN} if row.own else {}
    options |= _where(row)
    return FedLSVI(M, **settings).learn(
        made.envs, T, SEED, features=with_own(made) if row.own else made.features,
        progress=False, keep_models=True, **options,
    )  # fmt: skip


def _where(row: Row) -> dict[str, Any]:
    """Arguments of `learn`; an engine is named and cuts the agents itself."""
    if row.transport == "frames":
        return {"transport": over_frames(M)}
    if row.transport == "silence":
        return {"transport": silent_for_a_while}
    return {"transport": row.transport, "cohorts": M}


def silent_for_a_while(plan: Any) -> Lossy:
    """Frames to sites of one agent each; the second one is away from the seventh exchange on."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    transport: Lossy = lossy(between(*SILENCE), folder, CARRY, M)(plan)
    transports[id(plan)] = transport
    return transport


def _offline(row: Row, made: Source, data: Any) -> Any:
    own: dict[str, Any] = {"stationary": row.stationary, "aggregation": row.aggregation}
    own |= {"privacy": PRIVACY} if row.private else {}
    frames = row.transport == "frames"
    if row.head == "evaluation":
        worlds = logged_worlds(data, like=made.envs)
        taught, how = evaluated(row.masks), {"transport": in_threads if frames else row.transport}
        return estimate_value(
            taught.policy, worlds, taught.plan.features, lam=LAM, repeats=0, cohorts=M, **own, **how
        )
    own |= {"exchange": row.exchange, "own_features": OWN * row.own}
    learner = PEVI(M, beta=BETA, lam=LAM, preset="practical", **own)
    return learner.learn(
        made.envs, data=data, features=with_own(made) if row.own else made.features,
        progress=False, **_where(row),
    )  # fmt: skip


@cache
def evaluated(masks: bool) -> Any:
    """The run whose policy is evaluated: what the logs taught, of allowed actions."""
    return run(Row("log", masks=masks, head="pevi"))


def literal(row: Row, advice: Any) -> LiteralRun:
    """Algorithms 1 and 2 line by line; `advice` decides near-ties (`literal.Greedy`)."""
    made = source(row.source, row.masks, row.stationary)
    options: dict[str, Any] = {"stationary": row.stationary, "advice": advice}
    options["diversity"] = 0.3 if row.diversity else 0.0
    if row.masks:
        options["allowed"] = [made.allowed] * M
    if row.away:
        options["there"] = there(AWAY, M, SEED)
        options["relabels"] = row.exchange == "one-trip"
    if made.logs is not None:
        options |= {"logs": made.logs, "only_logged": [M - 1]}
    return literal_fed_lsvi(made.worlds, made.phi, M, T, H, SEED, LAM, BETA, GAMMA, **options)


def literal_exploit(row: Row, before: LiteralRun) -> Array:
    """w of one more backward pass without a bonus, over all that was seen. Step by step, of who is
    away the last response stands."""
    made = source(row.source, row.masks, row.stationary)
    phi, gram, w = feature_lookup(made.phi), before.gram, np.zeros_like(before.w)
    for i in reversed(range(H)):
        ahead = values_after(i + 1, phi, (w, gram), 0.0, [float(H)] * H, made.allowed)
        b = np.zeros(w.shape[1])
        for m in range(M):
            if row.exchange == "stepwise" and m not in before.present:
                b += before.sent[m, i]
                continue
            paths = [episode[m] for episode in before.trajectories]
            seen = [[path[h] for path in paths if path] for h in range(H)]
            seen = [x + y for x, y in zip(seen, made.logs[m], strict=True)] if made.logs else seen
            b += response([part for rows in seen for part in rows] if row.stationary else seen[i],
                          phi, ahead)  # fmt: skip
        w[i] = np.linalg.solve(gram[i], b)
    return w

"""What does differential privacy cost step by step, compared with one trip?

Random linear MDPs (S = 20, A = 4, d = 8, H = 5) and linear MDPs on [0, 1] (A = 3, d = 8, H = 5),
50 agents at 3 sites with secure sums, δ = 10⁻⁷. It measures the regret of the last tenth of the
episodes, relative to the uniform policy.

    python -m studies.private_steps tune RESULTS     candidates for the defaults
    python -m studies.private_steps RESULTS          the table

There is no limit to meet: the table shows how much more is lost than in one trip. It has ε = 5 and
1 with T = 2,000 and 20,000, on the instances of the study of one trip (`private`); on
continuous states, where every synchronisation relabels the whole history, only T = 2,000.

Fixed before the first run: the candidates are ρ = .5, 1 and 2 with N = 9, 17 and 33 rounds, on
other finite instances at ε = 5, T = 2,000 and ε = 1, T = 20,000, and the one with the smallest sum
of both means is the default. Runs in RESULTS are not repeated.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.config import Parameters
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.protocol.session import FederatedPlayer, Session
from studies.arms import ArmFile
from studies.private import (
    AGENTS,
    DELTA,
    HELD_OUT,
    LIMITS,
    best_value,
    late_regret,
    uniform_value,
)

SITES, INSTANCES, CONTINUOUS = 3, 20, 5
EPSILONS, LENGTHS = (5.0, 1.0), (2_000, 20_000)
TUNING, TUNED_ON = 8_700, 4
"""Instances of the candidates are numbered from here, apart from those of other studies."""
CANDIDATES = [(ratio, rounds) for ratio in (0.5, 1.0, 2.0) for rounds in (9, 17, 33)]
SIMULATED = 200_000
"""Episodes from which the uniform policy's value on continuous states is estimated."""


@dataclass(frozen=True)
class Arm:
    """One way to play.

    Attributes:
        epsilon: ε; None is no noise.
        episodes: T.
        exchange: "one-trip" or "stepwise".
        continuous: Whether states are those of [0, 1].
        ratio, rounds: What `tune` compares; None is the default.
    """

    epsilon: float | None
    episodes: int
    exchange: str
    continuous: bool = False
    ratio: float | None = None
    rounds: int | None = None


def values_on_the_line(env: ContinuousLinearMDP) -> tuple[float, float]:
    """V₁* and V₁ of the policy that takes all actions alike, over initial states: exact, and from
    episodes."""
    rng, paid = np.random.default_rng(0), np.zeros(SIMULATED)
    agents = np.zeros(SIMULATED, np.int64)
    x = first = env.reset(rng.random((SIMULATED, env.draws_at_reset)), agents)
    for h in range(1, env.horizon + 1):
        a = rng.integers(env.n_actions, size=SIMULATED).astype(np.int32)
        r, x = env.step(h, x, a, rng.random((SIMULATED, env.draws_per_step)))
        paid += r
    return float(env.optimal_values_at(first).mean()), float(paid.mean())


def divided(parameters: Parameters, ratio: float) -> Parameters:
    """The same numbers, with another division of the budget between Λ and b."""

    class Divided(Parameters):
        @property
        def release(self) -> PrivateRelease | None:
            usual = super().release
            assert isinstance(usual, StepwiseRelease)
            return replace(usual, response_ratio=ratio)

    return Divided(**{each.name: getattr(parameters, each.name) for each in fields(parameters)})


def play(arm: Arm, instance: int) -> float:
    """Regret of the last tenth of the episodes, over the uniform policy's."""
    T, env = arm.episodes, RandomLinearMDP(seed=instance)
    best, uniform = best_value(env), uniform_value(env)
    world: Any = env
    if arm.continuous:
        world = ContinuousLinearMDP(seed=instance)
        best, uniform = values_on_the_line(world)
    settings: dict[str, Any] = {"exchange": arm.exchange, "aggregation": "secure"}
    if arm.rounds is not None:
        settings["rounds"] = arm.rounds
    if arm.epsilon is None:
        settings |= {"gamma": 1.0, "cap": "off", "rounds": 33, "min_round": T // 200}
    else:
        settings["privacy"] = {"epsilon": arm.epsilon, "delta": DELTA}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrafficWarning)
        session = FedLSVI(AGENTS, **settings).prepare(world, T, 0, threads=1, cohorts=SITES)
    if arm.ratio is not None:
        parameters = divided(session.plan.parameters, arm.ratio)
        session.close()
        session = Session(FederatedPlayer.of(replace(session.plan, parameters=parameters), SITES))
    late = late_regret(session)
    return late / (AGENTS * (T // 10) * (best - uniform))


def plan() -> Iterator[tuple[Arm, int]]:
    """Every run of the table."""
    for i in range(INSTANCES):
        for T in LENGTHS:
            for epsilon in EPSILONS:
                for exchange in ("stepwise", "one-trip"):
                    yield Arm(epsilon, T, exchange), HELD_OUT + i
    for i in range(CONTINUOUS):
        for each in (*EPSILONS, None):
            yield Arm(each, LENGTHS[0], "stepwise", continuous=True), HELD_OUT + i


def tuning() -> Iterator[tuple[Arm, int]]:
    """Every run of the comparison of candidates."""
    for i in range(TUNED_ON):
        for ratio, rounds in CANDIDATES:
            for epsilon, T in LIMITS:
                yield Arm(epsilon, T, "stepwise", False, ratio, rounds), TUNING + i


def tuned(known: ArmFile[Arm]) -> str:
    """The table of candidates, best first."""
    rows = []
    for ratio, rounds in CANDIDATES:
        arms = [Arm(e, T, "stepwise", False, ratio, rounds) for e, T in LIMITS]
        means = [known.values(arm).mean() for arm in arms]
        rows.append((sum(means), ratio, rounds, *means))
    head = ("ρ", "N", "ε = 5, T = 2,000", "ε = 1, T = 20,000")
    body = [(f"{r:g}", str(n), f"{a:.4f}", f"{b:.4f}") for _, r, n, a, b in sorted(rows)]
    return markdown(head, body)


def table(known: ArmFile[Arm]) -> str:
    """Mean and worst instance of every arm."""
    rows = []
    for exchange in ("one-trip", "stepwise"):
        for T in LENGTHS:
            cells = [_cell(known.values(Arm(e, T, exchange))) for e in EPSILONS]
            rows.append((f"finite, {exchange}, T = {T:,}", *cells, ""))
    arms = [Arm(e, LENGTHS[0], "stepwise", continuous=True) for e in (*EPSILONS, None)]
    cells = [_cell(known.values(arm)) for arm in arms]
    rows.append((f"continuous, stepwise, T = {LENGTHS[0]:,}", *cells))
    return markdown(("", "ε = 5", "ε = 1", "no noise"), rows)


def _cell(found: np.ndarray) -> str:
    if not len(found):
        return "–"
    return f"{found.mean():.3f} ({found.max():.2f}) of {len(found)}"


def main(argv: list[str]) -> None:
    """Play, and print."""
    tune = argv[0] == "tune"
    known = ArmFile(Path(argv[1] if tune else argv[0]), Arm)
    known.play(tuning() if tune else plan(), play)
    print(tuned(known) if tune else table(known))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What does differential privacy cost? Regret against ε, with secure sums and without.

Random linear MDPs (S = 20, A = 4, d = 8, H = 5), 50 agents, δ = 10⁻⁷, T = 2,000 and 20,000 per
agent. It measures the regret of the last tenth of the episodes, relative to the uniform policy.

    python -m studies.private tune RESULTS     candidates for the defaults
    python -m studies.private RESULTS          the limits, the curve, the table
    python -m studies.private figure RESULTS PNG

Limits, fixed before the first run: with 50 sites the mean over 20 instances is below 10 % at ε = 5,
T = 2,000 and below 5 % at ε = 1, T = 20,000. The curve over ε has 3 sites of 16 or 17 agents, whose
sum has √(3/2) times the noise, because two of them must suffice. Without secure sums every agent
adds all the noise (5 instances). ε = ∞ is the same schedule of rounds without noise.

RESULTS is a file of JSON lines, one for each run. Runs in it are not repeated, so the study can be
stopped and resumed. Noise has no seed: another study gives other numbers.

The candidates for the defaults use other instances: 9, 17 and 33 rounds with a shift of .03, .1
and .3, on 20 instances at both limits and at ε = 1, T = 2,000; the one with the smallest sum of the
three means is the default. A prototype with continuous noise on instances 1,000 to 1,005 fixed what
is not compared here: noise of half σ on u and N, and a first round of T/200.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.protocol.session import Session
from fedlsvi.report.plotting import Curve, Panel, paint
from studies.arms import ArmFile

AGENTS, DELTA, INSTANCES, LOCAL = 50, 1e-7, 20, 5
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, None)
"""None is ∞."""
LENGTHS = (2_000, 20_000)
LIMITS = {(5.0, 2_000): 0.10, (1.0, 20_000): 0.05}
TUNING, HELD_OUT = 8_500, 8_600
"""Instances are numbered from here, apart from those of other studies."""
CANDIDATES = [(rounds, shift) for rounds in (9, 17, 33) for shift in (0.03, 0.1, 0.3)]
TUNED_ON, TUNED_AT = 20, [*LIMITS, (1.0, 2_000)]


@dataclass(frozen=True)
class Arm:
    """One way to play.

    Attributes:
        epsilon: ε; None is none.
        episodes: T.
        sites: With secure sums; 0 is the local model, in which every agent adds all the noise.
        rounds, shift: What `tune` compares; None is the default.
    """

    epsilon: float | None
    episodes: int
    sites: int
    rounds: int | None = None
    shift: float | None = None


def uniform_value(env: RandomLinearMDP) -> float:
    """V₁ of the policy that takes all actions alike."""
    V = np.zeros(env.n_states)
    for h in range(env.horizon - 1, -1, -1):
        V = (env.r[h] + env.P[h] @ V).mean(axis=-1)
    return float(np.asarray(env.initial_laws).reshape(-1, env.n_states)[0] @ V)


def best_value(env: RandomLinearMDP) -> float:
    """V₁*."""
    V = np.zeros(env.n_states)
    for h in range(env.horizon - 1, -1, -1):
        V = (env.r[h] + env.P[h] @ V).max(axis=-1)
    return float(np.asarray(env.initial_laws).reshape(-1, env.n_states)[0] @ V)


def play(arm: Arm, instance: int) -> float:
    """Regret of the last tenth of the episodes, over the uniform policy's."""
    env, T = RandomLinearMDP(seed=instance), arm.episodes
    settings: dict[str, Any] = {"exchange": "one-trip", "aggregation": "exact"}
    if arm.sites:
        settings["aggregation"] = "secure"
    if arm.rounds is not None:
        settings["rounds"] = arm.rounds
    if arm.epsilon is None:
        settings |= {"gamma": 1.0, "cap": "off", "rounds": 33, "min_round": T // 200}
    else:
        settings["privacy"] = {"epsilon": arm.epsilon, "delta": DELTA}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrafficWarning)
        session = FedLSVI(AGENTS, **settings).prepare(env, T, 0, threads=1, cohorts=arm.sites or 1)
    player: Any = session.player
    if arm.shift is not None:
        player.between.repair.shift = arm.shift
    late = late_regret(session)
    return late / (AGENTS * (T // 10) * (best_value(env) - uniform_value(env)))


def late_regret(session: Session) -> float:
    """Play a session to its end; the group regret of the last tenth of the episodes."""
    for _ in session.rounds():
        pass
    session.close()
    assert session.regret is not None
    T = len(session.regret)
    return float(session.regret[-1] - session.regret[T - T // 10 - 1])


def plan() -> Iterator[tuple[Arm, int]]:
    """Every run of the study, the limits first."""
    for epsilon, T in LIMITS:
        for i in range(INSTANCES):
            yield Arm(epsilon, T, AGENTS), HELD_OUT + i
    for i in range(INSTANCES):
        for T in LENGTHS:
            for each in EPSILONS:
                yield Arm(each, T, 3), HELD_OUT + i
            for each in EPSILONS[:-1] if i < LOCAL else ():
                yield Arm(each, T, 0), HELD_OUT + i


def tuning() -> Iterator[tuple[Arm, int]]:
    """Every run of the comparison of candidates."""
    for i in range(TUNED_ON):
        for rounds, shift in CANDIDATES:
            for epsilon, T in TUNED_AT:
                yield Arm(epsilon, T, 3, rounds, shift), TUNING + i


def tuned(known: ArmFile[Arm]) -> str:
    """The table of candidates, best first."""
    rows = []
    for rounds, shift in CANDIDATES:
        means = [known.values(Arm(e, T, 3, rounds, shift)).mean() for e, T in TUNED_AT]
        rows.append((sum(means), rounds, shift, *means))
    head = ("N", "shift", *(f"ε = {e:g}, T = {T:,}" for e, T in TUNED_AT))
    body = [(str(n), f"{c:g}", *(f"{mean:.4f}" for mean in each))
            for _, n, c, *each in sorted(rows)]  # fmt: skip
    return markdown(head, body)


def tables(known: ArmFile[Arm]) -> str:
    """The limits, and mean and worst instance for every ε."""
    said = []
    for (epsilon, T), limit in LIMITS.items():
        found = known.values(Arm(epsilon, T, AGENTS))
        said.append(
            f"ε = {epsilon:g}, T = {T:,}, {AGENTS} sites: mean {found.mean():.4f}, median "
            f"{np.median(found):.4f}, worst {found.max():.4f} of {len(found)}; "
            f"limit {limit:g}: {'holds' if found.mean() < limit else 'does not hold'}"
        )
    rows = []
    for sites, name in ((3, "secure sums"), (0, "local model")):
        for T in LENGTHS:
            cells = []
            for each in EPSILONS:
                found = known.values(Arm(each, T, sites))
                cells.append(f"{found.mean():.3f} ({found.max():.2f})" if len(found) else "–")
            rows.append((f"{name}, T = {T:,}", *cells))
    head = ("", *(f"ε = {e:g}" if e is not None else "∞" for e in EPSILONS))
    return "\n".join([*said, "", markdown(head, rows)])


def figure(known: ArmFile[Arm], path: Path) -> None:
    """Regret against ε, mean and the middle half of the instances."""
    at = np.array([e for e in EPSILONS if e is not None])
    panels = []
    for T in LENGTHS:
        curves = []
        for i, (sites, name) in enumerate(((3, "secure sums"), (0, "local model"))):
            found = [known.values(Arm(float(e), T, sites)) for e in at]
            if all(len(each) for each in found):
                low, high = np.array([np.quantile(each, [0.25, 0.75]) for each in found]).T
                mean = np.array([each.mean() for each in found])
                curves.append(Curve(name, at, mean, low, high, colour=i))
        without = known.values(Arm(None, T, 3))
        if len(without):
            level = np.full(len(at), without.mean())
            curves.append(Curve("no noise", at, level, colour=-1, marks=False, dashed=True))
        ylabel = "regret in the last tenth ÷ uniform"
        panels.append(Panel(f"T = {T:,}", "ε", ylabel, curves))
    paint(panels, path)


def main(argv: list[str]) -> None:
    """Play, or draw what was played."""
    way = argv[0] if argv[0] in ("figure", "tune") else "play"
    known = ArmFile(Path(argv[0] if way == "play" else argv[1]), Arm)
    if way == "figure":
        figure(known, Path(argv[2]))
    elif way == "tune":
        known.play(tuning(), play)
        print(tuned(known))
    else:
        known.play(plan(), play)
        print(tables(known))


if __name__ == "__main__":
    main(sys.argv[1:])

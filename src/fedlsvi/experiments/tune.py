"""Tuning that is fair: one scale parameter per algorithm, one grid, one budget, one rule.

Every algorithm has one number that sets how much it explores. Each is given the same factors on its
default, the same tuning instances and episodes; the factor with the lowest mean regret, divided by
the uniform policy's, is chosen. Where regret is not known, it is the factor with the highest mean
return over the last tenth of the episodes. What is reported comes from instances that took no part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.config import Parameters
from fedlsvi.envs import registry as environments
from fedlsvi.errors import InvalidInput
from fedlsvi.experiments.compare import Question
from fedlsvi.experiments.runner import Outcome, RunSpec, uniform
from fedlsvi.protocol.plan import Plan
from fedlsvi.report.intervals import Interval, median
from fedlsvi.storage.settings_file import ARRAYS, Table

FACTORS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the default scale, to begin with."""

LEAST, MOST = 1.0 / 4096.0, 64.0
"""The grid widens while the best factor is at one of its ends, no further than this."""


def _refusal(uniform_regret: float | None) -> InvalidInput:
    if uniform_regret is None:
        return InvalidInput(
            "tuning needs both regret and the value of the uniform policy: choose a finite "
            "problem, or a black box, which is tuned by return",
            code="regret-unknown",
        )
    return InvalidInput(
        "the uniform policy is optimal on this problem, so there is nothing to tune: choose an "
        "environment where actions matter",
        code="nothing-to-tune",
    )


@dataclass(frozen=True)
class Scale:
    """The parameter that sets an algorithm's exploration, its default, and whether that is a β
    that shrinks from step to step, or one that is the most of a bonus that knows the noise."""

    parameter: str
    default: float
    tapered: bool = False
    noisy: bool = False


def scale_of(name: str, p: Parameters) -> Scale:
    """beta, sigma, c or what else sets exploration, and what is in force where it is left out."""
    known = algorithms.entry(name).parameters()
    if "beta" in known:
        return Scale("beta", p.beta, p.taper, p.noisy)
    for parameter in ("sigma", "c", "temperature", "epsilon", "prior"):
        if parameter not in known:
            continue
        if known[parameter] is not None:
            return Scale(parameter, float(known[parameter]))
        settings: Any = algorithms.make(name, preset=p.preset).settings
        return Scale(parameter, settings.scale(p) if parameter == "sigma" else settings.scale)
    raise InvalidInput(
        f"algorithm '{name}' has no exploration parameter (beta, sigma or c) to tune: leave it out",
        code="no-scale",
    )


@dataclass(frozen=True)
class Tuning:
    """What is tuned on what.

    An instance sets the seed of the run and, where the environment has one, that of the problem.

    Attributes:
        question: Algorithms and problem.
        tune: Instances to choose on.
        test: Instances to report on.
    """

    question: Question
    tune: list[int]
    test: list[int]

    def __post_init__(self) -> None:
        both = sorted(set(self.tune) & set(self.test))
        if both:
            raise InvalidInput(
                f"--tune and --test share the instances {both}: use different ones, e.g. 0:3 and "
                "100:105",
                code="instances-overlap",
            )

    @property
    def varies(self) -> bool:
        """Whether instances are different problems, and not only different runs."""
        env = self.question.shared["env"]
        if isinstance(env, list):
            return False
        name = env if isinstance(env, str) else env["name"]
        return name != ARRAYS and "seed" in environments.entry(name).parameters()

    def refuse_seed(self, given: Table) -> None:
        """Refuse a seed of the problem given with --set: it is the number of the instance."""
        env = given.get("env")
        if self.varies and isinstance(env, dict) and "seed" in env:
            raise InvalidInput(
                f"env.seed is set to {env['seed']}, but each number of --tune and --test is the "
                "seed of a problem: leave it out",
                code="instances-are-seeds",
            )

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Of every algorithm, made once: every environment is made for it."""
        return replace(self.question, seeds=[*self.tune, *self.test]).check()

    @property
    def by_return(self) -> bool:
        """Whether scores are returns, of which the highest is the best."""
        return not any(plan.knows_values for plan in self.plans.values())

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """Of every algorithm, checked."""
        found = {}
        for name, plan in self.plans.items():
            alike = all(env is plan.envs[0] for env in plan.envs)
            envs = plan.envs[:1] if alike else plan.envs
            if plan.knows_values:
                lost = uniform(envs, plan.parameters.n_agents, plan.parameters.episodes)
                if not lost:
                    raise _refusal(lost)
            found[name] = scale_of(name, plan.parameters)
            if found[name].parameter in self.question.own[name]:
                raise InvalidInput(
                    f"{found[name].parameter} of '{name}' is being tuned: leave it out of --set",
                    code="tuned-setting",
                )
        return found

    def specs(
        self, instances: Sequence[int], factors: Mapping[str, Sequence[float]]
    ) -> list[RunSpec]:
        """Runs of each algorithm at these multiples of its default."""
        found = []
        for name, chosen in factors.items():
            for factor in chosen:
                for i in instances:
                    table = self.question.table(name, i)
                    if self.varies:
                        env = table["env"]
                        table["env"] = ({"name": env} if isinstance(env, str) else env) | {
                            "seed": i
                        }
                    scale = self.scales[name]
                    table[scale.parameter] = factor * scale.default
                    # a β that is given is the same at every step and all of the bonus, unless asked
                    table |= {"taper": True} if scale.tapered else {}
                    table |= {"bonus": "noise"} if scale.noisy else {}
                    labels = {"algorithm": name, "factor": factor, "instance": i}
                    found.append(RunSpec(table, labels, float(table["episodes"])))
        return found


def score(outcome: Outcome) -> float:
    """Regret divided by that of the uniform policy: 1 is no better than random. The return over the
    last tenth of the episodes, where regret is not known."""
    if outcome.regret is None and outcome.late_return is not None:
        return outcome.late_return
    if outcome.regret is None or not outcome.uniform:
        raise _refusal(None if outcome.regret is None else outcome.uniform)
    return outcome.regret / outcome.uniform


def choose(scores: Mapping[float, Sequence[float]], highest: bool = False) -> float:
    """The factor of the best mean score; of equal ones that nearest to the default."""
    sign = -1.0 if highest else 1.0
    return min(scores, key=lambda f: (sign * float(np.mean(scores[f])), abs(float(np.log(f)))))


def wider(scores: Mapping[float, Sequence[float]], highest: bool = False) -> list[float]:
    """Two more factors beyond the end of the grid, if the best one so far lies there."""
    best = choose(scores, highest)
    steps = {min(scores): (0.5, 0.25), max(scores): (2.0, 4.0)}.get(best, ())
    return [best * step for step in steps if LEAST <= best * step <= MOST]


@dataclass(frozen=True)
class Row:
    """One algorithm: what was chosen, and what it does elsewhere."""

    name: str
    scale: Scale
    factor: float
    tuned: float  # mean score on the tuning instances
    held_out: Interval
    default: Interval  # held out, at the default scale
    edge: bool  # the chosen factor is at an end of the grid
    scalars: Interval  # held out, at the chosen factor
    rounds: Interval

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {
            "algorithm": self.name,
            "parameter": self.scale.parameter,
            "value": self.factor * self.scale.default,
            "factor": self.factor,
            "tuning_mean": self.tuned,
            "held_out": self.held_out.to_dict(),
            "held_out_default": self.default.to_dict(),
            "edge": self.edge,
            "scalars": self.scalars.to_dict(),
            "rounds": self.rounds.to_dict(),
        }


Grouped = Mapping[str, Mapping[float, Sequence[float]]]
"""A number of each run, by algorithm and factor."""


def grouped(
    specs: Sequence[RunSpec],
    outcomes: Mapping[str, Outcome],
    measure: Callable[[Outcome], float] = score,
) -> dict[str, dict[float, list[float]]]:
    """Scores, or something else, by algorithm and factor."""
    found: dict[str, dict[float, list[float]]] = {}
    for spec in specs:
        row = found.setdefault(spec.labels["algorithm"], {})
        row.setdefault(spec.labels["factor"], []).append(measure(outcomes[spec.key]))
    return found


def rows(
    scales: Mapping[str, Scale],
    tuning: Grouped,
    cells: Sequence[RunSpec],
    outcomes: Mapping[str, Outcome],
    highest: bool = False,
) -> list[Row]:
    """Every algorithm at its chosen factor, the best first on the instances held out.

    Args:
        scales: What was tuned, by algorithm.
        tuning: Scores on the tuning instances.
        cells: Runs on the instances held out, at the chosen factor and at the default.
        outcomes: Of these runs, by key.
        highest: Whether scores are returns.
    """
    testing = grouped(cells, outcomes)
    sent = grouped(cells, outcomes, lambda o: float(o.scalars))
    rounds = grouped(cells, outcomes, lambda o: float(o.rounds))
    found = []
    for name, scores in tuning.items():
        factor = choose(scores, highest)
        row = Row(name, scales[name], factor, float(np.mean(scores[factor])),
                  median(testing[name][factor]), median(testing[name][1.0]),
                  factor in (min(scores), max(scores)),
                  median(sent[name][factor]), median(rounds[name][factor]))  # fmt: skip
        found.append(row)
    return sorted(found, key=lambda row: row.held_out.mid, reverse=highest)


def table(found: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table."""
    header = ["", "algorithm", "parameter", "chosen", "× default", "tuning mean", "held out",
              "held out, default", "scalars", "rounds"]  # fmt: skip
    return header, [
        [str(i), r.name, r.scale.parameter, f"{r.factor * r.scale.default:.4g}",
         f"{r.factor:g}" + (" (end of the grid)" if r.edge else ""), f"{r.tuned:.4f}",
         r.held_out.text(".4f"), r.default.text(".4f"), f"{r.scalars.mid:,.0f}",
         f"{r.rounds.mid:,.0f}"]
        for i, r in enumerate(found, 1)
    ]  # fmt: skip

"""How many patients does it take? A whole study of records, simulated a few hundred times.

A study is M sites with the records of n patients each, treated as today, from which `pevi` learns
one policy under the protections of the study. It is simulated in a known problem, or in the model
that fits a log, so the value of every learned policy is exact. The power at n is how often it beats
today's practice by a margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from fedlsvi.algorithms.pevi import PEVI
from fedlsvi.checks import check_seed, integer, number, plural
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.errors import InvalidSetting
from fedlsvi.experiments.processes import cores, pool, pool_errors
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.learner import unattended
from fedlsvi.logs.fitted_model import Practice, fitted_model
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.world import LoggedWorld, logged_worlds
from fedlsvi.report.plotting import Curve, Panel, paint

PATIENTS = (30, 100, 300, 1_000)
WANTED = 0.8
"""The power that studies are usually planned for."""


@dataclass(frozen=True)
class Planned:
    """The study to be simulated.

    Attributes:
        practice: The problem, and how patients are treated today.
        sites: M.
        settings: Of `pevi`.
        features: As in `PEVI.learn`.
        seed: Decides all records.
    """

    practice: Practice
    sites: int
    settings: Mapping[str, Any]
    features: Any = None
    seed: int = 0

    def learned(self, patients: int, number: int) -> float:
        """The value of what one simulated study learns, in the problem's own units."""
        env, law, ends = self.practice
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        logs = [
            record_episodes(env, patients, law, seed=seed, agent=m, ends=ends)
            for m in range(self.sites)
        ]
        logs = [log | {"patient": log["episode"]} for log in logs]  # one episode each
        with unattended():
            run = PEVI(self.sites, **self.settings).learn(
                env, data=logs, features=self.features, progress=False, threads=1
            )
        return self.practice.worth(run.policy.table)


@dataclass(frozen=True)
class Size:
    """What studies of one size come to.

    Attributes:
        patients: n at each site.
        power: Share of studies whose policy beats practice by the margin.
        low, high: Its 95 % interval (Clopper–Pearson).
        gain: Median of value − practice.
        worst, best: Its 10 % and 90 % quantiles.
        harm: Share of studies whose policy is worse than practice.
    """

    patients: int
    power: float
    low: float
    high: float
    gain: float
    worst: float
    best: float
    harm: float

    @classmethod
    def of(cls, patients: int, gains: np.ndarray, margin: float) -> Size:
        """From the gains of all studies."""
        wins, n = int((gains >= margin).sum()), len(gains)
        ends = binomtest(wins, n).proportion_ci(0.95)
        worst, gain, best = (float(q) for q in np.quantile(gains, (0.1, 0.5, 0.9)))
        harm = float((gains < 0.0).mean())
        return cls(patients, wins / n, float(ends.low), float(ends.high), gain, worst, best, harm)


@dataclass(frozen=True)
class Power:
    """What simulated studies say about a real one.

    Attributes:
        sizes: By number of patients.
        values: (sizes, studies) the value of every learned policy.
        practice: The value of today's practice, in the same units.
        margin: By how much it is to be beaten.
        sites: M.
        where: The problem that studies were simulated in.
        protections: What protects the study, in words.
    """

    sizes: list[Size]
    values: np.ndarray
    practice: float
    margin: float
    sites: int
    where: str
    protections: str

    @property
    def enough(self) -> int | None:
        """The fewest patients of a site from which on power stays at 80 % or more, of those
        simulated; None if there are none."""
        found = None
        for size in reversed(self.sizes):
            if size.power < WANTED:
                break
            found = size.patients
        return found

    def paragraph(self) -> str:
        """A paragraph for the protocol of the study."""
        studies, largest = self.values.shape[1], self.sizes[-1]
        margin = f" by at least {self.margin:g}" if self.margin else ""
        said = [
            f"We simulated {studies:,} complete studies of {plural(self.sites, 'site')} for each "
            f"of {plural(len(self.sizes), 'size')}, in {self.where}. In each, every site "
            "contributes the records of its patients, treated as today; the sites learn one policy "
            f"by pessimistic value iteration, with {self.protections}; and the exact value of that "
            f"policy is compared with that of today's practice, {self.practice:.4g}."
        ]
        shown = next((s for s in self.sizes if s.patients == self.enough), largest)
        said.append(
            f"With {plural(shown.patients, 'patient')} at each site "
            f"({shown.patients * self.sites:,} in all) the learned policy beats practice{margin} "
            f"in {shown.power:.0%} of the studies (95 % interval {shown.low:.0%} to "
            f"{shown.high:.0%}); the median gain is {shown.gain:.3g} (10th to 90th percentile "
            f"{shown.worst:.3g} to {shown.best:.3g}), and in {shown.harm:.0%} the policy is worse "
            "than practice."
        )
        said.append(
            f"This is the smallest size simulated from which on power stays at {WANTED:.0%}."
            if self.enough is not None
            else f"No size simulated has a power of {WANTED:.0%}."
        )
        return " ".join(said)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows."""
        header = ["patients per site", "in all", "power", "95 %", "gain, median", "10–90 %",
                  "worse than practice"]  # fmt: skip
        return header, [
            [f"{s.patients:,}", f"{s.patients * self.sites:,}", f"{s.power:.3f}",
             f"{s.low:.3f} to {s.high:.3f}", f"{s.gain:.4g}", f"{s.worst:.4g} to {s.best:.4g}",
             f"{s.harm:.3f}"]
            for s in self.sizes
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """A JSON form, without the value of every study."""
        kept = {name: value for name, value in vars(self).items() if name not in ("values",)}
        kept |= {"sizes": [asdict(size) for size in self.sizes]}
        return kept | {"studies": self.values.shape[1], "enough": self.enough,
                       "paragraph": self.paragraph()}  # fmt: skip

    def markdown(self) -> str:
        """Paragraph and table."""
        return f"{self.paragraph()}\n\n{markdown(*self.table())}\n"

    def plot(self, *paths: str | PathLike[str]) -> None:
        """Draw power and gain over the number of patients, to files."""

        def of(name: str) -> np.ndarray:
            return np.array([getattr(size, name) for size in self.sizes])

        patients, xlabel = of("patients"), "patients of each site"

        def curve(label: str, middle: str, low: str, high: str) -> Curve:
            return Curve(label, patients, of(middle), of(low), of(high))

        def level(label: str, at: float) -> Curve:
            ends = patients[[0, -1]]
            return Curve(label, ends, np.full(2, at), colour=-1, marks=False, dashed=True)

        title = f"Beats practice by {self.margin:g}" if self.margin else "Beats practice"
        power = curve("power, 95 % interval", "power", "low", "high")
        gain = curve("gain, 10–90 % of studies", "gain", "worst", "best")
        panels = [
            Panel(title, xlabel, "share of studies", [power, level(f"{WANTED:.0%}", WANTED)],
                  logy=False),
            Panel("Gain over practice", xlabel, "value", [gain, level("margin", self.margin)],
                  logy=False),
        ]  # fmt: skip
        paint(panels, *(Path(path) for path in paths))


def power(
    data: Any = None,
    *,
    env: Any = None,
    behaviour: np.ndarray | None = None,
    ends: Sequence[int] | None = None,
    sites: int | None = None,
    patients: Sequence[int] = PATIENTS,
    margin: float = 0.0,
    studies: int = 300,
    seed: int = 0,
    jobs: int | None = None,
    features: Any = None,
    **settings: Any,
) -> Power:
    """Simulate a study of records at several sizes.

    Args:
        data: Logs, as in `fedlsvi.offline`, whose model stands for reality; all sites are alike in
            it. Or logged worlds.
        env: With `data`, the environment it was recorded in, for sizes and units. Without, the
            finite problem that stands for reality.
        behaviour: Today's practice in `env`, as in `record_episodes`; None is uniform.
        ends: States of `env` in which an episode is over; None is those that nothing leads out of
            and that pay 0.
        sites: M; None is the number of logs.
        patients: Numbers of patients of each site.
        margin: By how much practice is to be beaten, in the units of the rewards.
        studies: How many are simulated at each size.
        seed: Decides all records. The noise of `privacy=` has no seed.
        jobs: Processes; None is one per core. It changes nothing but the time.
        features: As in `PEVI.learn`.
        **settings: Of `PEVI`, such as `beta`, `stationary`, `aggregation` and `privacy`.
    """
    sizes = sorted({integer("patients", n, 1) for n in patients})
    studies, margin = integer("studies", studies, 1), number("margin", margin, 0.0)
    practice, logs = _practice(data, env, behaviour, ends, bool(settings.get("stationary")))
    if sites is None and not logs:
        raise InvalidSetting("sites is missing: say how many take part", code="sites-missing")
    M = logs if sites is None else integer("sites", sites, 1)
    planned = Planned(practice, M, settings, features, check_seed(seed))
    PEVI(M, **settings)  # refuses wrong settings before anything is simulated
    share = min(jobs or cores(), studies)
    values = np.empty((len(sizes), studies))
    for j, found in enumerate(_shares(planned, sizes, studies, share)):
        values[:, j::share] = found
    today = practice.value
    return Power(
        [Size.of(n, row - today, margin) for n, row in zip(sizes, values, strict=True)],
        values, today, margin, M, practice.env.name, _protections(settings),
    )  # fmt: skip


def _practice(
    data: Any, env: Any, behaviour: np.ndarray | None, ends: Sequence[int] | None, stationary: bool
) -> tuple[Practice, int]:
    """What studies are simulated in, and how many logs there are of it."""
    if data is not None:
        known = isinstance(data, list) and data and isinstance(data[0], LoggedWorld)
        like = None if env is None else as_environment(env)
        worlds = data if known else logged_worlds(data, like=like)
        return fitted_model(worlds, stationary), len(worlds)
    world = None if env is None else as_environment(env)
    if not isinstance(world, FiniteMDP):
        raise InvalidSetting(
            "studies are simulated in the model of a log or in a finite problem: give data=, or "
            f"env= with numbered states and known probabilities, got {world!r}",
            code="power-needs-model",
        )
    if ends is None:
        stay = np.einsum("hxax->hxa", world.P) == 1.0
        over = stay.all(axis=(0, 2)) & (world.r == world.absorbing_reward).all(axis=(0, 2))
        ends = np.flatnonzero(over).tolist()
    law = world.uniform_policy() if behaviour is None else np.asarray(behaviour)
    if law.ndim == 2:
        law = np.eye(world.n_actions)[law]
    return Practice(world, law, tuple(ends)), 0


def _protections(settings: Mapping[str, Any]) -> str:
    """In words."""
    said = {"secure": ["secure sums"], "exact": ["exact sums"]}.get(
        settings.get("aggregation", "float"), []
    )
    if (least := settings.get("min_round", 1)) > 1:
        said.append(f"at least {least} patients of a site behind every sum")
    if (spent := settings.get("privacy")) is not None:
        said.append(f"differential privacy (ε = {spent['epsilon']:g}, δ = {spent['delta']:g})")
    return " and ".join(said) or "plain sums"


def _shares(
    planned: Planned, sizes: Sequence[int], studies: int, share: int
) -> Iterator[np.ndarray]:
    """Values (sizes, …) of every share-th study, from each first one on."""
    if share == 1:
        yield _simulate(planned, sizes, range(studies))
        return
    with pool_errors(), pool(share) as processes:
        tasks = [
            processes.submit(_simulate, planned, sizes, range(j, studies, share))
            for j in range(share)
        ]
        for task in tasks:
            yield task.result()


def _simulate(planned: Planned, sizes: Sequence[int], numbers: range) -> np.ndarray:
    return np.array([[planned.learned(n, k) for k in numbers] for n in sizes])

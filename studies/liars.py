"""How much harm does one lying site do, and is it found?

    python -m studies.liars --out build/liars

Random linear MDPs, one agent per site, M from 3 to 50, sites ξ-close to one MDP. Site M − 1 lies:

    invented   all its visits are to the pair with the lowest value, with the highest reward
    zero       b = 0
    halved     half of b
    negated    −b, which passes if sites have their own features and no sign was agreed
    inverted   it learns with rewards 1 − r
    timed      high targets for low ones and low for high (b = y·Σφ − b, y the largest target), but
               only before step H, and only in rounds outside the public schedule of comparisons
    slow       the same in every round, the share of the lie growing from 0 to 1 over half the run
    colluding  two sites do so from the start

The last three play 4,000 episodes with ξ = 0 and rounds="off", so that most rounds are outside the
schedule. All of this passes the server's bounds (`remote.guard`). Limits, fixed before the first
run: at most 1 false alarm in 100 honest runs; at M ≥ 5, the liar and no other site is found in at
least 95 of 100 runs; regret of the honest agents with `exclude` at most 2 times that of a run
without a liar. Instances 1000 and up are reported; the thresholds in `remote.suspicion` were chosen
on 0 to 5.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.core.statistics import identity, pack, unpack
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.heterogeneous import xi_close
from fedlsvi.envs.linear import RandomLinearMDP
from fedlsvi.experiments.processes import cores, pool
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Model, Reply, Request, Start, Stop, Upload
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.transport import InProcess
from fedlsvi.remote.suspicion import FEWEST, due, scheduled, suspect
from fedlsvi.report.plotting import Curve, Panel, paint

ATTACKS = ("invented", "zero", "halved", "negated", "inverted")
PATIENT = ("timed", "slow", "colluding")
"""Attacks on a run that is long enough for rounds in which sites are not compared by schedule."""

PATIENT_SITES = (3, 5, 10)
PATIENT_EPISODES = 4000
PATIENT_RUNS = 100
SITES = (3, 5, 10, 50)
XIS = (0.0, 0.05, 0.2)
EPISODES = 400
FIRST = 1000
"""The first instance that reports."""

RUNS = dict.fromkeys(SITES, 100)
UNDEFENDED = 10
"""M → runs per setting, honest and with each liar, and those in which nothing is done about it."""

ONE_HOT = {5: 20, 10: 20}
ONE_HOT_EPISODES = 2000
"""The same with one-hot features and ξ = 0: d is 80 instead of 8, and takes longer to learn."""

BETA = 1.0
"""β = .2·H, the practical default when this was played."""


class Sites(InProcess):
    """One agent per site, of which the last may lie; the server compares them as over frames.

    Attributes:
        action: What is done about a suspect: "note" or "exclude".
        found: Site → the first episode after which it was suspected.
    """

    def __init__(self, plan: Plan, attack: str, action: str, xi: float) -> None:
        p, m = plan.parameters, plan.parameters.n_agents
        self.plan, self.attack, self.action, self.xi = plan, attack, action, xi
        super().__init__([cohort_of(plan, 0, p.n_agents)], p.trigger, p.overshoot)
        self.found: dict[int, int] = {}
        self.excluded: set[int] = set()
        self._shape, self._shape_of_run = (p.n_agents, p.dim), (p.horizon, p.episodes)
        one = identity(p.dim, 0.0, p.packing)
        self._gram = np.zeros((p.horizon, p.n_agents, *one.shape))
        self._y_max = 1.0 + np.append(p.ceilings[1:], 0.0)
        self._before = self._now = 0
        self._liars = (m - 2, m - 1) if attack == "colluding" else (m - 1,)
        self._secret = plan.seed.to_bytes(32, "little")  # to be repeated; a server draws it
        self._liar = self._inverted() if attack == "inverted" else None

    def _inverted(self) -> Cohort:
        """The liar's agent, in a world with rewards 1 − r."""
        m, envs = self.plan.parameters.n_agents, list(self.plan.envs)
        own = envs[-1]
        assert isinstance(own, FiniteMDP)
        envs[-1] = FiniteMDP(
            own.P, 1.0 - own.r, horizon=own.horizon, initial=own.initial_laws,
            phi=getattr(own.default_features(), "table", None),
        )  # fmt: skip
        return cohort_of(replace(self.plan, envs=tuple(envs)), m - 1, m)

    def deliver(self, message: Request) -> Sequence[Reply]:
        replies = super().deliver(message)
        lies = None
        if self._liar is not None and isinstance(message, Start | Stop | Model):
            lies = self._liar.receive(message)
        if isinstance(message, Stop):
            self._before, self._now = self._now, message.t
        (reply,) = replies
        return [self._receive(reply, lies)] if isinstance(reply, Upload) else replies

    def _receive(self, upload: Upload, lies: Reply) -> Upload:
        """The uploads of step h as the server uses them."""
        h, (m, d) = upload.h, self._shape
        packing = self.plan.parameters.packing
        loc, b = unpack(upload.gram, d, packing).copy(), upload.b.copy()
        if isinstance(lies, Upload):
            loc[-1], b[-1] = unpack(lies.gram, d, packing)[0], lies.b[0]
        gram = self._gram[h - 1]
        self._lie(h, loc, b, gram + loc)
        for site in self.excluded:  # what it gave is taken back, once
            loc[site], b[site] = -gram[site], 0.0
        gram += loc
        inside = [site for site in range(m) if site not in self.excluded]
        if len(inside) >= FEWEST and due(self._before, self._now, self._secret):
            y_max, lam = float(self._y_max[h - 1]), self.plan.parameters.lam
            worst = suspect(gram[inside], b[inside], lam, y_max, self.xi)
            site = inside[worst.site]
            if worst.suspected:
                self.found.setdefault(site, self._now)
                if self.action == "exclude":
                    self.excluded.add(site)
                    loc[site] -= gram[site]
                    gram[site], b[site] = 0.0, 0.0
        return Upload(h, pack(loc, packing), b)

    def _lie(self, h: int, loc: np.ndarray, b: np.ndarray, gram: np.ndarray) -> None:
        if self.attack in PATIENT:
            for site in self._liars:
                b[site] += self._share(h) * (self._flipped(h, gram[site], b[site]) - b[site])
        elif self.attack == "zero":
            b[-1] = 0.0
        elif self.attack == "halved":
            b[-1] /= 2.0
        elif self.attack == "negated":
            b[-1] *= -1.0
        elif self.attack == "invented":
            phi = self._worst(h)
            one = phi * phi if loc.ndim == 2 else np.outer(phi, phi)
            loc[-1] = (self._now - self._before) * one
            b[-1] = self._now * self._y_max[h - 1] * phi

    def _share(self, h: int) -> float:
        """How much of what a patient liar sends is the lie."""
        if self.attack == "timed":
            honest = h == self._shape_of_run[0] or scheduled(self._before, self._now)
            return 0.0 if honest else 1.0
        if self.attack == "slow":
            return min(1.0, 2.0 * self._now / self._shape_of_run[1])
        return 1.0

    def _flipped(self, h: int, gram: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Σφ(y_max − y): features on the simplex sum to 1, so Σφ is Σφφᵀ1."""
        flipped: np.ndarray = self._y_max[h - 1] * (gram if gram.ndim == 1 else gram.sum(1)) - b
        return flipped

    def _worst(self, h: int) -> np.ndarray:
        """φ of the pair with the least value at step h."""
        env = self.plan.envs[0]
        assert isinstance(env, FiniteMDP)
        values, step = env.optimal_values(), min(h, len(env.P)) - 1
        following = values[h] if h < env.horizon else np.zeros(env.n_states)
        q = env.r[min(h, len(env.r)) - 1] + env.P[step] @ following
        state, action = np.unravel_index(int(q.argmin()), q.shape)
        row: np.ndarray = env.default_features()(np.array([state]))[0, action]
        return row


@dataclass(frozen=True)
class Trial:
    """One run: `attack` is "" where all are honest. `one_hot` forgets the d features of the MDP:
    every pair of a state and an action is then a feature of its own."""

    sites: int
    xi: float
    attack: str
    action: str
    instance: int
    one_hot: bool = False
    episodes: int = EPISODES


@dataclass(frozen=True)
class Result:
    """What came of it.

    Attributes:
        regret: Of one agent whose world is that of the honest sites, all episodes.
        found: Episode after which the liar was suspected, or the last of several; 0 is never.
        wrong: How many honest sites were suspected.
    """

    trial: Trial
    regret: float
    found: int
    wrong: int


def play(trial: Trial) -> Result:
    """One run in this process."""
    m = trial.sites
    env = RandomLinearMDP(seed=trial.instance)
    envs: Any = xi_close(env, m, trial.xi, seed=trial.instance) if trial.xi else env
    if trial.one_hot:
        envs = FiniteMDP(env.P, env.r, horizon=env.horizon, initial=env.initial_laws)
    made: list[Sites] = []

    def transport(plan: Plan) -> Sites:
        made.append(Sites(plan, trial.attack, trial.action, trial.xi))
        return made[0]

    rounds: Literal["off"] | None = "off" if trial.episodes == PATIENT_EPISODES else None
    learner = FedLSVI(n_agents=m, policy="explore", beta=BETA, rounds=rounds)
    run = learner.learn(envs, trial.episodes, trial.instance, transport=transport, threads=1,
                        progress=False)  # fmt: skip
    assert run.regret is not None
    found = made[0].found
    liars = (m - 2, m - 1) if trial.attack == "colluding" else (m - 1,) if trial.attack else ()
    wrong = sum(site not in liars for site in found)
    after = [found[site] for site in liars if site in found]
    every = bool(after) and len(after) == len(liars)
    return Result(trial, float(run.regret[-1]) / m, max(after) if every else 0, wrong)


def trials() -> Iterator[Trial]:
    """All runs of the study: five sites first, so that the numbers of which the limits speak are
    there early; then instance by instance."""
    for sites in ((5,), (10,), (3, 50)):
        for i, m, xi in product(range(max(RUNS.values())), sites, XIS):
            if i < RUNS[m]:
                yield from _instance(m, xi, FIRST + i, one_hot=False)
    for m, runs in ONE_HOT.items():
        for i in range(runs):
            yield from _instance(m, 0.0, FIRST + i, one_hot=True)
    yield from patient()


def patient() -> Iterator[Trial]:
    """The runs with liars that wait."""
    for i, m in product(range(PATIENT_RUNS), PATIENT_SITES):
        attacks = PATIENT if m >= 5 else PATIENT[:2]  # of three sites two could not collude
        yield from _instance(m, 0.0, FIRST + i, False, attacks, PATIENT_EPISODES)


def _instance(
    m: int,
    xi: float,
    instance: int,
    one_hot: bool,
    attacks: Sequence[str] = ATTACKS,
    episodes: int = EPISODES,
) -> Iterator[Trial]:
    episodes = ONE_HOT_EPISODES if one_hot else episodes
    for attack in ("", *attacks):
        yield Trial(m, xi, attack, "exclude", instance, one_hot, episodes)
        if attack and instance < FIRST + UNDEFENDED:
            yield Trial(m, xi, attack, "note", instance, one_hot, episodes)


def run_all(path: Path, seconds: float, jobs: int, only: str = "all") -> list[Result]:
    """Play what is not in the file yet, for at most so many seconds; a line for each result."""
    done = (
        [_read(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    )
    known = {result.trial for result in done}
    wanted = patient() if only == "patient" else trials()
    left = [trial for trial in wanted if trial not in known]
    end, step = monotonic() + seconds, 8 * jobs
    with pool(jobs) as processes, path.open("a") as file:
        for first in range(0, len(left), step):
            if monotonic() > end:
                break
            for result in processes.map(play, left[first : first + step]):
                file.write(json.dumps(asdict(result)) + "\n")
                done.append(result)
            file.flush()
    return done


def _read(line: dict[str, Any]) -> Result:
    return Result(Trial(**line.pop("trial")), **line)


@dataclass(frozen=True)
class Row:
    """One setting in the table.

    Attributes:
        runs: How many.
        found: In how many the liar was suspected and nobody else; of honest runs, in how many
            nobody was.
        wrong: In how many an honest site was suspected.
        episode: Median episode after which the liar was suspected.
        regret: Median of regret over that of the honest run of the same instance.
        undefended: The same with "note", where nothing is done.
    """

    sites: int
    xi: float
    episodes: int
    attack: str
    one_hot: bool
    runs: int
    found: int
    wrong: int
    episode: float
    regret: float
    undefended: float


def rows(results: Sequence[Result]) -> list[Row]:
    """The table, from single runs."""
    honest = {_world(r.trial): r for r in results if not r.trial.attack}
    table = []
    lengths = sorted({r.trial.episodes for r in results})
    for one_hot, T, attack, xi, m in product(
        (False, True), lengths, ("", *ATTACKS, *PATIENT), XIS, SITES
    ):
        setting = (one_hot, T, attack, xi, m)
        here = [r for r in results if _setting(r.trial) == setting]
        ended = [r for r in here if r.trial.action == "exclude"]
        if not ended:
            continue
        ratios = {
            action: [
                r.regret / honest[_world(r.trial)].regret
                for r in here
                if r.trial.action == action and _world(r.trial) in honest
            ]
            for action in ("exclude", "note")
        }
        right = sum(r.wrong == 0 and (r.found > 0 or not attack) for r in ended)
        table.append(Row(
            m, xi, T, attack or "none", one_hot, len(ended), right, sum(r.wrong > 0 for r in ended),
            _median([r.found for r in ended if r.found]), _median(ratios["exclude"]),
            _median(ratios["note"]),
        ))  # fmt: skip
    return table


def _setting(trial: Trial) -> tuple[bool, int, str, float, int]:
    return trial.one_hot, trial.episodes, trial.attack, trial.xi, trial.sites


def _world(trial: Trial) -> tuple[int, float, int, bool, int]:
    """What a run has in common with the honest run that it is measured against."""
    return trial.sites, trial.xi, trial.instance, trial.one_hot, trial.episodes


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else math.nan


def markdown(table: Sequence[Row]) -> str:
    """The table of the page."""
    lines = [
        "| attack | ξ | M | T | runs | right | false alarms | found after | "
        "regret, excluded | regret, not excluded |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in table:
        numbers = (_text(r.episode, ".0f"), _text(r.regret, ".2f"), _text(r.undefended, ".1f"))
        name = f"{r.attack}, one-hot" if r.one_hot else r.attack
        size = f"{r.xi:g} | {r.sites} | {r.episodes:,}"
        lines.append(
            f"| {name} | {size} | {r.runs} | {r.found} | {r.wrong} | " + " | ".join(numbers) + " |"
        )
    return "\n".join(lines) + "\n"


def _text(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def draw(table: Sequence[Row], path: Path) -> None:
    """Regret over that of honest runs against M, without and with exclusion."""
    xi = XIS[1]
    panels = []
    for title, field in (("noted only", "undefended"), ("excluded", "regret")):
        curves = []
        for colour, attack in enumerate(ATTACKS):
            drawn = [r for r in table if (r.attack, r.xi, r.one_hot) == (attack, xi, False)]
            m = np.array([r.sites for r in drawn], np.float64)
            regret = np.array([getattr(r, field) for r in drawn])
            curves.append(Curve(attack, m, regret, colour=colour))
        panels.append(Panel(f"{title}, ξ = {xi:g}", "sites M", "regret ÷ honest", curves))
    paint(panels, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/liars"))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--only", choices=("all", "patient"), default="all")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    table = rows(run_all(chosen.out / "results.jsonl", chosen.seconds, chosen.jobs, chosen.only))
    (chosen.out / "table.md").write_text(markdown(table))
    draw(table, chosen.out / "liars.svg")
    print(markdown(table))


if __name__ == "__main__":
    main()

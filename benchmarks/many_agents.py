"""Ten agents to a million: time and memory, each number of agents in a process of its own.

S=50, A=5, d=20, H=10, with `exchange="one-trip"` and `aggregation="exact"`, where agents are added
while they are summed; up to a thousand also with agents that keep sums of their own (the default).
All have the same number of agent-steps, but a million agents have ten times as many. Where agents
are asked, a thousand of them play each round, whatever M.

`python -m benchmarks.many_agents M`, or `M asked`, prints one reading as JSON; `benchmarks.scaling`
writes the page of all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.measure import Row, peak_megabytes

S, A, D, H = 50, 5, 20, 10
AGENTS = tuple(10**k for k in range(1, 7))
APART = (10, 100, 1_000)
"""Numbers of agents that are measured with sums of their own, too."""
ASKED, ASKED_OF, ASKED_EPISODES = 1_000, tuple(10**k for k in range(3, 7)), 100
"""How many are asked per round, of how many, and T."""
STEPS = 10**8
LARGEST = 10**9
"""Agent-steps of the most agents."""
SHARE, MEGABYTES = 0.2, {10**5: 1_000.0, 10**6: 6_000.0}


@dataclass(frozen=True)
class Reading:
    """One run.

    Attributes:
        agents: M.
        together: Whether agents were added while they were summed.
        episodes: T.
        rounds: K.
        seconds: By the clock.
        cpu: Of all processors together.
        megabytes: At the peak, with some 200 that any run takes.
        asked: How many agents were asked per round; 0 is all of them.
    """

    agents: int
    together: bool
    episodes: int
    rounds: int
    seconds: float
    cpu: float
    megabytes: float
    asked: int = 0

    @property
    def steps(self) -> int:
        """Agent-steps."""
        return (self.asked or self.agents) * self.episodes * H

    @property
    def rate(self) -> float:
        """Agent-steps per second of one processor, which other work on the machine changes less
        than it changes the clock."""
        return self.steps / self.cpu


def measured(agents: int, together: bool, asked: int = 0) -> Reading:
    """One run in this process."""
    warnings.simplefilter("ignore", TrafficWarning)
    env = RandomLinearMDP(n_states=S, n_actions=A, dim=D, horizon=H, seed=0)
    episodes = (LARGEST if agents == AGENTS[-1] else STEPS) // (agents * H)
    if asked:
        episodes = ASKED_EPISODES

    def learner(m: int) -> FedLSVI:
        some = {"participation": asked} if asked and m >= asked else {}
        if not together:
            return FedLSVI(m)
        return FedLSVI(m, exchange="one-trip", aggregation="exact", **some)

    # compiles all kinds of rounds: of one episode, of a few and of many
    learner(100).learn(env, 3, progress=False)
    learner(2).learn(env, 2_000, progress=False)
    if asked:
        learner(2 * asked).learn(env, 3, progress=False)
    clock, cpu = time.perf_counter(), time.process_time()
    run = learner(agents).learn(env, episodes, progress=False)
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    spent = (clock, cpu, peak_megabytes())
    return Reading(agents, together, episodes, run.rounds, *spent, asked)


def reading(agents: int, together: bool = True, asked: int = 0) -> Reading:
    """One run in a process of its own."""
    words = ("asked",) if asked else (str(int(together)),)
    command = [sys.executable, "-m", "benchmarks.many_agents", str(agents), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Reading(**json.loads(done.stdout.splitlines()[-1]))


def main() -> list[Row]:
    """The curve, and what is asked of a hundred thousand and of a million."""
    few = reading(AGENTS[0])
    rows = []
    for m in AGENTS:
        one = few if m == AGENTS[0] else reading(m)
        share, most = one.rate / few.rate, MEGABYTES.get(m, 0.0)
        rows += [
            Row(f"M={m:,}, {one.steps:.0e} agent-steps: by the clock", one.seconds, "s"),
            Row("  seconds of one processor", one.cpu, "s"),
            Row(
                "  peak memory", one.megabytes, "MB",
                f"<= {most:g}" if most else "", one.megabytes <= most if most else None,
            ),
            Row(
                "  agent-steps per second of a processor, over those of ten", share, "",
                f">= {SHARE}" if m == AGENTS[-1] else "",
                share >= SHARE if m == AGENTS[-1] else None,
            ),
        ]  # fmt: skip
    return rows


if __name__ == "__main__":
    number, word = int(sys.argv[1]), sys.argv[2] if sys.argv[2:] else "1"
    print(json.dumps(asdict(measured(number, word != "0", ASKED if word == "asked" else 0))))

"""The page on what grows with the number of agents: measured, drawn and written.

`python -m benchmarks.scaling` measures (`many_agents`), writes `scaling.json` beside this file, and
from it docs/scaling.md and its figure; `python -m benchmarks.scaling page` only the latter two.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.many_agents import AGENTS, APART, Reading, reading
from fedlsvi.report.plotting import STYLE

HERE = Path(__file__).parent
KNOWN, PAGE, FIGURE = (
    HERE / "scaling.json",
    HERE.parent / "docs" / "scaling.md",
    HERE.parent / "docs" / "images" / "scaling.svg",
)

TEXT = """\
# Many agents

One process simulates up to a million agents on finite states. What to pick:

| agents | pick |
|---|---|
| up to a few hundred | the defaults |
| a thousand or more, finite states | `exchange="one-trip", aggregation="exact"`: agents keep \
what they saw in this round and no more |
| more than one machine, or slow simulators | [Ray](cluster.md), which spreads agents over \
processes, each with sums of its own |
| sites that must not show their sums | `aggregation="secure"`; sums per site, [more](privacy.md) |

```python engine
from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP

env = RandomLinearMDP(n_states=50, n_actions=5, dim=20, horizon=10, seed=0)
many = FedLSVI(n_agents=10_000, exchange="one-trip", aggregation="exact")
run = many.learn(env, episodes=10)
```

## Time and memory against M
S = 50, A = 5, d = 20, H = 10, the default preset, two cores shared with other work. Because of
that work, judge speed by the seconds of one processor: they add up what all cores did. Each number
of agents ran in a process of its own; of its memory some 200 MB are Python, NumPy and Numba.

{together}

The same with agents that keep sums of their own, which is the default:

{apart}

![Processor time of an agent-step, and memory, against the number of agents](images/scaling.svg)

- Memory grows by about {bytes} bytes per agent{old}.
- An agent-step of a million agents takes {times:.1f} times the processor time of one of ten agents.
  With ten, rounds are long, and an agent's episodes are simulated side by side. With a million, γ
  is 1 and every agent synchronises after each of its episodes.
- In between, rounds have some episodes, and each agent's sums are rounded by themselves.

## What holds
- Rounds, models, regret and the count of scalars are those of agents kept one by one, to the last
  bit.
- It applies by itself to agents in this process, on finite states with `exchange="one-trip"` and
  `aggregation="exact"`. With `privacy=`, `participation=`, `present=`, `diversity=`, `data=`,
  stepped environments, or one-hot features of a large state space, agents keep sums of their own.
- With `exchange="stepwise"` it cannot: each agent's response over its whole history is rounded by
  itself, and the sum of rounded responses is not the rounded response of the sum.
- A round's episodes are kept: 4(H + 1) bytes for each agent and episode, or counts of 8HS² bytes
  where these are less. `rounds=` and `gamma=` limit how long a round is.
- A run whose agents cannot fit into the memory of this machine is refused before it begins.
- Integers of 64 bits hold the sum of what all agents add in a round. With so many agents that
  rounding could move Λ by a tenth of λ, the grid is as fine as the longest round allows, 42 bits
  after the point for a million agents.

`fedlsvi plan` says before a run what it will take on your machine. `python -m benchmarks.scaling`
makes this page.
"""


def table(readings: list[Reading]) -> str:
    """As Markdown."""
    lines = [
        "| M | episodes | rounds | agent-steps | seconds by the clock | seconds of one processor | "
        "agent-steps per processor-second | peak memory |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r.agents:,} | {r.episodes:,} | {r.rounds:,} | {r.steps:,} | {r.seconds:.0f} | "
        f"{r.cpu:.1f} | {r.rate / 1e6:.0f} M | {r.megabytes:,.0f} MB |"
        for r in readings
    ]
    return "\n".join(lines)


def write(readings: list[Reading]) -> None:
    """The page and its figure."""
    together = [r for r in readings if r.together]
    apart = [r for r in readings if not r.together]
    few, most = together[0], together[-1]
    each = (most.megabytes - few.megabytes) * 2**20 / (most.agents - few.agents)
    old = ""
    if len(apart) > 1:
        kept = (apart[-1].megabytes - apart[0].megabytes) * 2**20
        kept /= apart[-1].agents - apart[0].agents
        old = f"; with sums of their own by about {round(kept, -3):,.0f}"
    text = TEXT.format(
        together=table(together), apart=table(apart), bytes=f"{round(each, -1):,.0f}", old=old,
        times=few.rate / most.rate,
    )  # fmt: skip
    PAGE.write_text(text, "utf-8")
    draw(together, apart)


def draw(together: list[Reading], apart: list[Reading]) -> None:
    """Nanoseconds of an agent-step, and megabytes, against M."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        axes: Any = figure.subplots(1, 2)
        for readings, label, mark in (
            (together, "added while they are summed", "o-"),
            (apart, "each with its own sums", "s--"),
        ):
            agents = [r.agents for r in readings]
            axes[0].loglog(agents, [1e9 / r.rate for r in readings], mark, label=label)
            axes[1].loglog(agents, [r.megabytes for r in readings], mark, label=label)
        axes[0].set(title="processor time of an agent-step", xlabel="agents", ylabel="ns")
        axes[1].set(title="peak memory", xlabel="agents", ylabel="MB")
        axes[0].legend()
        figure.savefig(FIGURE, format="svg", metadata={"Date": None})


def main() -> None:
    """Measure, unless only the page is wanted."""
    if sys.argv[1:] != ["page"]:
        readings = [reading(m) for m in AGENTS] + [reading(m, together=False) for m in APART]
        KNOWN.write_text(json.dumps([asdict(r) for r in readings], indent=1) + "\n", "utf-8")
    write([Reading(**one) for one in json.loads(KNOWN.read_text("utf-8"))])


if __name__ == "__main__":
    main()

"""The page on what grows with the number of agents, and with T, S, d and H: measured, drawn and
written.

`python -m benchmarks.scaling` measures (`many_agents`, `sizes`), writes `scaling.json` beside this
file, and from it docs/scaling.md and its figure. `python -m benchmarks.scaling agents`, `asked` or
`sizes` measures one of the three again, in a few minutes; `page` only writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.many_agents import AGENTS, APART, ASKED, ASKED_OF, Reading, reading
from benchmarks.sizes import BASE, SIZES, SizeReading, all_readings
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
| some are asked per round | the same with `participation=1_000`, [semantics](participation.md) |
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

![Processor time and memory against the number of agents, and other sizes](images/scaling.svg)

- Memory grows by about {bytes} bytes per agent{old}.
- An agent-step of a million agents takes {ratio:.1f} times the processor time of one of ten agents.
  With ten, rounds are long, and an agent's episodes are simulated side by side. With a million, γ
  is 1 and every agent synchronises after each of its episodes.
- In between, rounds have some episodes, and each agent's sums are rounded by themselves.

## A thousand are asked per round
With `participation=1_000`, {episodes} rounds of one episode each:

{asked}

An agent that is not asked takes about {idle} bytes, for its counters, and {micro:.1f} microseconds
when the run begins; a round costs what its thousand agents cost.

## Time and memory against T, S, d and H
The default settings with ten agents, S = 100, A = 5, d = 20, H = 10 and T = 100,000, one size
varied at a time.

{sizes}

- {more_T} times the episodes take {time_T} times the time: the number of rounds hardly grows,
  and an episode on a table costs little.
- {more_S} times the states take {time_S} times the time and the memory of their tables: a round's
  counts, and the model of the world that measures regret, have S² entries for each step.
- {more_d} times the dimension takes {time_d} times the time, {more_H} times the horizon
  {time_H} times.

## What holds
- Rounds, models, regret and the count of scalars are those of agents kept one by one, to the last
  bit.
- It applies by itself to agents in this process, on finite states with `exchange="one-trip"` and
  `aggregation="exact"`. With `privacy=`, `diversity=`, `data=`, stepped environments, or one-hot
  features of a large state space, agents keep sums of their own.
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


def asked_table(readings: list[Reading]) -> str:
    """As Markdown."""
    lines = ["| M | seconds of one processor | peak memory |", "|--:|--:|--:|"]
    lines += [f"| {r.agents:,} | {r.cpu:.1f} | {r.megabytes:,.0f} MB |" for r in readings]
    return "\n".join(lines)


def size_table(sizes: list[SizeReading]) -> str:
    """As Markdown, one row for each axis."""
    lines = [
        "| varied | rounds | seconds of one processor | peak memory, MB |",
        "|:--|:--|:--|:--|",
    ]
    for axis in SIZES:
        own = [r for r in sizes if r.axis == axis]
        columns = (
            [f"{r.size:,}" for r in own],
            [f"{r.rounds:,}" for r in own],
            [f"{r.cpu:.1f}" for r in own],
            [f"{r.megabytes:,.0f}" for r in own],
        )
        at, *rest = (" · ".join(column) for column in columns)
        lines.append(f"| {axis} = {at} | {' | '.join(rest)} |")
    return "\n".join(lines)


def times(sizes: list[SizeReading]) -> dict[str, str]:
    """What the largest of each axis takes over the smallest."""
    found = {}
    for axis in SIZES:
        own = [r for r in sizes if r.axis == axis]
        found[f"more_{axis}"] = f"{own[-1].size // own[0].size:,}"
        found[f"time_{axis}"] = f"{own[-1].cpu / own[0].cpu:.0f}"
    return found


def write(known: dict[str, Any]) -> None:
    """The page and its figure."""
    readings, asked = ([Reading(**one) for one in known[key]] for key in ("agents", "asked"))
    sizes = [SizeReading(**one) for one in known["sizes"]]
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
        ratio=few.rate / most.rate, asked=asked_table(asked), sizes=size_table(sizes),
        **times(sizes), episodes=asked[0].episodes,
        idle=f"{round(per_agent(asked, 'megabytes') * 2**20, -1):,.0f}",
        micro=per_agent(asked, "cpu") * 1e6,
    )  # fmt: skip
    PAGE.write_text(text, "utf-8")
    draw(together, apart, sizes)


def per_agent(asked: list[Reading], name: str) -> float:
    """What one more agent adds that is not asked."""
    first, last = asked[0], asked[-1]
    more: float = getattr(last, name) - getattr(first, name)
    return more / (last.agents - first.agents)


def draw(together: list[Reading], apart: list[Reading], sizes: list[SizeReading]) -> None:
    """Nanoseconds of an agent-step, and megabytes, against M; seconds, and megabytes, against the
    other sizes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 7.0), layout="constrained")
        panels: Any = figure.subplots(2, 2)
        axes, others = panels
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
        for axis, mark in zip(SIZES, ("o-", "s--", "^-.", "d:"), strict=True):
            own = [r for r in sizes if r.axis == axis]
            at = [r.size / BASE[axis] for r in own]
            others[0].loglog(at, [r.cpu for r in own], mark, label=axis)
            others[1].loglog(at, [r.megabytes for r in own], mark, label=axis)
        about = ", ".join(f"{axis} = {size:,}" for axis, size in BASE.items())
        label = f"times {about}"
        others[0].set(title="processor time of a run", xlabel=label, ylabel="s")
        others[1].set(title="peak memory", xlabel=label, ylabel="MB")
        others[0].legend()
        figure.savefig(FIGURE, format="svg", metadata={"Date": None})


def main() -> None:
    """Measure what was asked, or all, and write the page."""
    wanted = sys.argv[1:] or list(PARTS)
    known = json.loads(KNOWN.read_text("utf-8")) if KNOWN.exists() else {}
    for name in wanted:
        if name in PARTS:
            known[name] = [asdict(one) for one in PARTS[name]()]
            KNOWN.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    write(known)


def of_agents() -> list[Reading]:
    """Against M, added together and apart."""
    return [reading(m) for m in AGENTS] + [reading(m, together=False) for m in APART]


PARTS: dict[str, Callable[[], Sequence[Any]]] = {
    "agents": of_agents,
    "asked": lambda: [reading(m, asked=ASKED) for m in ASKED_OF],
    "sizes": all_readings,
}


if __name__ == "__main__":
    main()

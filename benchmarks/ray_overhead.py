"""Ray compared with one process: M=64 agents on 2 actors, the same bits, and what it costs.

The last rows are lower bounds. One is the same number of exchanges over the same connections, with
frames of the same sizes that are not packed, read or checked, between otherwise idle processes. The
other is all processor time of driver and actors, as if spread perfectly over the cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from fedlsvi import FedLSVI, Run
from fedlsvi.config import Parameters
from fedlsvi.core.statistics import packed_size
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experiments.measure import Row, phases, seconds
from fedlsvi.learner import drive
from fedlsvi.remote.codec import HEADER_BYTES
from fedlsvi.remote.ray.cluster import connect
from fedlsvi.remote.ray.transport import RayTransport, on_ray


def watch(owner: Any, name: str) -> list[float]:
    """Time every call of a method; the seconds come into the list."""
    method, spent = getattr(owner, name), []

    def timed(*arguments: Any) -> Any:
        began = perf_counter()
        try:
            return method(*arguments)
        finally:
            spent.append(perf_counter() - began)

    setattr(owner, name, timed)
    return spent


@dataclass(frozen=True)
class Echo:
    """Answers every request with as many bytes as an upload has."""

    agents: tuple[int, int]
    size: int

    def __call__(self) -> Echo:
        return self

    def handle(self, frame: bytes) -> bytes:
        """No work at all."""
        return bytes(self.size)

    def end(self) -> bool:
        """Nothing was hidden."""
        return True

    def close(self) -> None:
        """Nothing is held."""


def lines(parameters: Parameters, exchanges: int) -> float:
    """Seconds for exchanges with two actors, each of which answers for half of the agents."""
    half, words = parameters.n_agents // 2, packed_size(parameters.dim, "packed") + parameters.dim
    echoes = [Echo((c * half, half), HEADER_BYTES + 8 * words * half) for c in range(2)]
    transport = RayTransport(parameters, echoes, 0)
    frames = dict.fromkeys(range(2), bytes(HEADER_BYTES + 8 * words))

    def exchange() -> None:
        for _ in range(exchanges):
            assert len(list(transport.exchange(frames, 60.0))) == 2

    spent, _ = seconds(exchange)
    transport.close()
    return spent


def processor(pids: list[int]) -> float:
    """Seconds of processor time that processes of this machine have had (Linux)."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system
    return ticks / os.sysconf("SC_CLK_TCK")


def main(episodes: int = 1_000_000) -> list[Row]:
    """S=50, A=5, d=20, H=10, M=64, γ auto; the start of Ray and of the actors is not timed."""
    env = RandomLinearMDP(n_states=50, n_actions=5, dim=20, horizon=10, seed=0)
    learner = FedLSVI(n_agents=64)
    FedLSVI(n_agents=64, gamma=50).learn(env, episodes=100, progress=False)  # compile
    here, run = seconds(
        lambda: learner.learn(env, episodes=episodes, seed=0, progress=False, threads=2)
    )
    connect()
    session = learner.prepare(env, episodes, 0, transport=partial(on_ray, cohorts=2))
    transport: Any = session.player.transport
    checks = watch(transport.guard, "check")
    follows = watch(session.player, "_follow")
    asked, waits, exchange = [], [], transport.exchange

    def timed(*arguments: Any) -> Iterator[Any]:
        asked.append(1)
        answers = exchange(*arguments)
        while True:
            began = perf_counter()
            answer = next(answers, None)
            waits.append(perf_counter() - began)
            if answer is None:
                return
            yield answer

    transport.exchange = timed
    actors, driver = transport.processes(), [os.getpid()]
    before = processor(driver), processor(actors)
    there, _ = seconds(lambda: drive(session, []))
    driven, acted = processor(driver) - before[0], processor(actors) - before[1]
    cores = len(os.sched_getaffinity(0))
    distant = Run.of(session, learner.settings)
    same = distant.w.tobytes() == run.w.tobytes() and distant.taus == run.taus
    near, far = phases(run), phases(distant)
    transport.close()
    floor = lines(session.plan.parameters, len(asked))
    return [
        Row("Ray over 2 actors / one process with 2 threads", there / here, "", "<= 1.3",
            there <= 1.3 * here),
        Row("  the same w and τ's to the last bit", float(same), "", "1", same),
        Row("  seconds: one process", here, "s", ""),
        *(Row(f"    {k}", v, "s", "") for k, v in near.items()),
        Row("  seconds: Ray", there, "s", ""),
        *(Row(f"    {k}", v, "s", "") for k, v in far.items()),
        Row("    of which: exchanges, with the actors' work", sum(waits), "s", ""),
        Row("    of which: checks of uploads", sum(checks), "s", ""),
        Row("    of which: values for the regret", sum(follows), "s", ""),
        Row("  exchanges", len(asked), "", ""),
        Row("  rounds", len(run.records), "", ""),
        Row("  seconds for as many exchanges of unread frames", floor, "s", ""),
        Row("  one process and these exchanges / one process", (here + floor) / here, "", ""),
        Row("  processor seconds: driver", driven, "s", ""),
        Row("  processor seconds: actors", acted, "s", ""),
        Row(f"  these over {cores} cores without a gap / one process",
            (driven + acted) / cores / here, "", ""),
    ]  # fmt: skip

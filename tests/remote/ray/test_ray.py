"""Ray for real, on loopback: conformance, the same bits, many agents, a cluster that is joined, and
actors and drivers that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fedlsvi
import killing_places
import problems
from fedlsvi import PEVI, FedLSVI
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.cli import main
from fedlsvi.envs import (
    RandomLinearMDP,
    RandomMDP,
    logged_worlds,
    record_episodes,
    write_records,
)
from fedlsvi.learner import drive
from fedlsvi.remote.conformance import RUN, check_order, check_raising, parameters
from fedlsvi.remote.masking import KEYS
from fedlsvi.remote.ray import cluster as cluster_module
from fedlsvi.remote.ray import transport as engine
from fedlsvi.remote.ray.cluster import LOOPBACK
from fedlsvi.remote.ray.tcp import TcpConnection, TcpKey
from fedlsvi.remote.ray.transport import on_ray
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from recorded import recorded
from repeats import only_ci, repeats
from transports_over_frames import assert_same, learn
from variants import MIXED, assert_kept, paid

KILLS = repeats(1, 3)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("cluster")]


def make(made: Any, retry: RetryPolicy) -> engine.RayTransport:
    return engine.RayTransport(parameters(6), made, RUN, retry)


def test_conformance() -> None:
    check_order(make)
    check_raising(make)


def test_no_connection_is_opened_around_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray encrypts, frames travel by its calls."""

    def by_calls(made: Any, retry: RetryPolicy) -> engine.RayTransport:
        transport = make(made, retry)
        assert not transport._connections
        return transport

    monkeypatch.setenv("RAY_USE_TLS", "1")
    check_order(by_calls)


@only_ci
def test_frames_travel_by_calls_where_a_firewall_stops_tcp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = []

    def stopped(connection: TcpConnection, key: TcpKey) -> None:
        reached.append(key.host)
        raise TimeoutError

    monkeypatch.setattr(TcpConnection, "open", stopped)
    here = learn(problems.simplex())
    assert_same(here, learn(problems.simplex(), transport=partial(on_ray, cohorts=2)))
    assert reached == [LOOPBACK]


def test_listens_on_loopback_only() -> None:
    """Every listening socket of Ray's processes, by the table of the kernel."""
    assert cluster_module.ray_library().nodes()[0]["NodeManagerAddress"] == "127.0.0.1"
    assert _ray_processes()
    sockets, listening = set(), 0
    for fd in [fd for process in _ray_processes() for fd in _open_files(process)]:
        with suppress(OSError):  # closed meanwhile
            sockets.add(os.readlink(fd))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                address = local.partition(":")[0]
                assert address.endswith("0100007F"), f"{table}: listens on {address}"
                listening += 1
    assert listening > 0


def _ray_processes() -> list[Path]:
    """Those of this Ray: somebody else's on the machine has another session."""
    node = cluster_module.ray_library()._private.worker._global_node
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                path.name.isdigit()
                and node.session_name.encode() in (path / "cmdline").read_bytes()
            ):
                found.append(path)
    return found


def _open_files(process: Path) -> list[Path]:
    try:
        return [fd for fd in (process / "fd").iterdir() if fd.is_symlink()]
    except OSError:
        return []


@pytest.mark.parametrize("cohorts", [2, 1, 4][: repeats(1, 3)])
def test_same_run_as_in_process(cohorts: int) -> None:
    """Masks of actions, a stationary model, and a policy for every agent and episode, too."""
    made = problems.masked(), problems.chain(), problems.simplex(), problems.continuous()
    for problem in made[: repeats(1, 4)]:
        here = learn(problem)
        assert here.parameters.stationary == (problem.name == "chain")
        assert (here.parameters.diversity > 0.0) == (problem.name == "chain")
        assert_same(here, learn(problem, transport=partial(on_ray, cohorts=cohorts)))


@only_ci
def test_masks_of_each_agent_and_a_log_alone_are_the_same_run_too() -> None:
    """Five agents with masks of their own; four that play beside one that has only a log."""
    problem, _ = problems.masks_of_their_own(5)
    assert_same(learn(problem), learn(problem, transport=partial(on_ray, cohorts=5)))
    free = problems.continuous()
    logs, _ = recorded(free.one, [0, 9, 0, 0, 12], free.horizon, free.one.n_actions)
    some = replace(free, envs=[free.one] * 4 + [None])
    there = learn(some, data=logs, transport=partial(on_ray, cohorts=2))
    assert_same(learn(some, data=logs), there)


@only_ci  # the private run below has secure sums too
@pytest.mark.parametrize(("exchange", "cohorts"), [("one-trip", 3), ("stepwise", 5)])
def test_secure_sums_are_those_of_one_process(exchange: str, cohorts: int) -> None:
    """Three actors, or one for each of five agents: the model of "exact" in this process."""
    problem = problems.simplex()
    here = learn(problem, aggregation="exact", exchange=exchange)
    there = partial(on_ray, cohorts=cohorts)
    secure = learn(problem, aggregation="secure", exchange=exchange, transport=there)
    assert secure.w.tobytes() == here.w.tobytes()
    assert secure.counts == {"sites": cohorts}


def with_the_secrets_of(journals: Path, session: Any, firsts: list[int]) -> Any:
    """The player of a session whose cohorts, by their first agents, add the noise that actors
    with these journals have added."""
    secrets = {
        int(path.parent.name.split("-")[1]): bytes.fromhex(json.loads(path.read_text())["secret"])
        for path in journals.rglob("noise-*.json")
    }
    assert sorted(secrets) == firsts
    transport = session.player.transport
    armed = []
    for c, cohort in enumerate(transport.cohorts):
        transport.use_noise_key(secrets[int(cohort.agents[0])])
        armed.append(transport.protections[c])
    transport.protections = armed
    return session.player


PRIVATE = [("secure", "stepwise"), ("exact", "one-trip"), ("secure", "one-trip"),
           ("exact", "stepwise")]  # fmt: skip


@pytest.mark.parametrize(("aggregation", "exchange"), PRIVATE[: repeats(1, 4)])
def test_a_private_run_keeps_its_secrets_with_the_actors(
    aggregation: Any, exchange: Any, tmp_path: Path
) -> None:
    """With the secrets beside the actors' journals this process has the same model to the bit."""
    problem = problems.simplex() if exchange == "one-trip" else problems.continuous()
    learner = FedLSVI(n_agents=5, exchange=exchange, aggregation=aggregation, rounds=4,
                      privacy={"epsilon": 2.0, "delta": 1e-6})  # fmt: skip
    place = partial(on_ray, cohorts=3, journal=tmp_path, durable=False)
    about: dict[str, Any] = {"features": problem.features, "progress": False}
    there = learner.learn(problem.envs, 40, 1, transport=place, **about)
    session = learner.prepare(problem.envs, 40, 1, features=problem.features, cohorts=3)
    here = with_the_secrets_of(tmp_path, session, [0, 1, 3])
    list(session.rounds())
    assert here.w.tobytes() == there.w.tobytes()
    assert there.epsilon_spent == 2.0


def test_actors_delete_their_secrets_when_the_run_has_ended(tmp_path: Path) -> None:
    """Once the run folder has the last model, and no sooner: a run that stopped goes on."""
    problem = problems.simplex()
    learner = FedLSVI(
        n_agents=4, aggregation="secure", rounds=3, privacy={"epsilon": 2.0, "delta": 1e-6}
    )
    folder, place = tmp_path / "run", {"transport": "ray", "cohorts": 3}

    def secrets() -> list[str]:
        """What sites have; the file of a noise that was deleted stays, with nothing in it."""
        beside = (tmp_path / "run.agents").glob("*.secrets/*.json")
        tables = [(path.name, json.loads(path.read_text())) for path in beside]
        return sorted(name for name, table in tables if table.get("secret") != "")

    def stop(record: Any) -> Any:
        return fedlsvi.STOP

    about = {"features": problem.features, "progress": False}
    learner.learn(problem.envs, 40, 1, folder=folder, observers=[stop], **place, **about)
    assert len(secrets()) == 6
    assert secrets().count(KEYS) == 3
    again = partial(on_ray, cohorts=3, folder=folder)
    run = fedlsvi.resume(folder, env=problem.envs, transport=again, **about)
    assert run.rounds == 3
    assert secrets() == []


@only_ci  # over frames in test_recovery.py
@pytest.mark.parametrize("own", [*MIXED, {"participation": 0.6}], ids=str)
def test_other_triggers_are_the_same_run_too(own: dict[str, Any]) -> None:
    env = RandomLinearMDP(n_states=6, n_actions=3, dim=3, horizon=3, seed=2)
    learner = FedLSVI(n_agents=3, **{"gamma": 12.0} | paid(own, 3, 3, 9))
    there = learner.learn(env, 60, 1, progress=False, transport=partial(on_ray, cohorts=2))
    assert_same(learner.learn(env, 60, 1, progress=False), there)
    assert_kept(there, own)


@only_ci
def test_ten_thousand_agents_over_two_actors() -> None:
    env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=0)
    learner = FedLSVI(n_agents=10_000)
    there = learner.learn(env, episodes=8, progress=False, transport="ray", cohorts=2)
    assert_same(learner.learn(env, episodes=8, progress=False), there)


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(problems.simplex(S=120, A=5, d=4, H=3), id="large"),
        pytest.param(problems.continuous(), id="continuous"),
    ][: repeats(1, 2)],
)
def test_killed_actors_lose_nothing(problem: Any, tmp_path: Path) -> None:
    """SIGKILL an actor after every third round, and one inside each following synchronisation. What
    the actors of the large problem are made from is too large to travel with a call of Ray's."""
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)
    here = learner.learn(problem.envs, 160, 1, features=problem.features, progress=False)
    session = learner.prepare(
        problem.envs, 160, 1, features=problem.features,
        transport=partial(on_ray, cohorts=2, journal=tmp_path),
    )  # fmt: skip
    transport: Any = session.player.transport
    kills = 0
    inner = transport.exchange

    def exchange(frames: Any, deadline: float) -> Any:
        nonlocal kills
        if transport.number % 17 == 5 and kills < KILLS:
            with suppress(cluster_module.ray_library().exceptions.RayActorError):
                os.kill(transport.processes()[kills % 2], signal.SIGKILL)
                kills += 1
        return inner(frames, deadline)

    transport.exchange = exchange
    drive(session, [])
    assert kills == KILLS
    assert session.player.server.w.tobytes() == here.w.tobytes()
    assert session.player.server.gram.tobytes() == here.gram_packed.tobytes()


ARGUMENTS = ["--env", "random-linear", "--agents", "4", "--set", "gamma=3", "--seed", "4"]


def shell(*words: str, signals: str = "") -> subprocess.Popen[str]:
    """The command, with its agents on the Ray of these tests; it may send itself signals."""
    address = cluster_module.ray_library().get_runtime_context().gcs_address
    fedlsvi = [killing_places.__file__, signals] if signals else ["-m", "fedlsvi"]
    command = [sys.executable, *fedlsvi, *words, "--transport", "ray"]
    return subprocess.Popen(
        [*command, "--ray-address", address, "--cohorts", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def in_process(tmp_path: Path, episodes: int) -> fedlsvi.Run:
    """The same run by the same command, with its agents in its own process."""
    folder = tmp_path / "here"
    assert main(["run", *ARGUMENTS, "--episodes", str(episodes), "--out", str(folder)]) == 0
    return fedlsvi.load(folder)


def holders(journals: Path) -> list[int]:
    """Actors, known by the journals that they hold open."""
    found = []
    for process in Path("/proc").iterdir():
        for fd in _open_files(process) if process.name.isdigit() else []:
            with suppress(OSError):
                if os.readlink(fd).startswith(f"{journals}/"):
                    found.append(int(process.name))
                    break
    return found


def test_a_command_joins_the_cluster_at_an_address(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    process = shell("run", *ARGUMENTS, "--episodes", "200", "--out", str(folder))
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert_same(in_process(tmp_path, 200), fedlsvi.load(folder))


@only_ci
def test_a_wrong_address_is_refused_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedlsvi", "run", *ARGUMENTS, "--episodes", "20"]
    where = ["--transport", "ray", "--ray-address", "127.0.0.1:1", "--out", str(tmp_path / "run")]
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr
    assert not (tmp_path / "run").exists()


@only_ci
def test_killed_drivers_and_actors_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL to drivers at work, each followed by resume, and to an actor of each driver: a driver
    stops itself for the actor's death, and dies some rounds later."""
    folder, chance = tmp_path / "run", random.Random(0)
    often = ["--checkpoint-seconds", "0"]
    words = ["run", *ARGUMENTS, "--episodes", "200", "--out", str(folder), *often]
    for last in (False, False, True):
        drawn = [f"{chance.randint(1, 3)}:{chance.randint(1, 16)}" for _ in range(2)]
        signals = [f"{int(signal.SIGSTOP)}:{drawn[0]}", f"{int(signal.SIGKILL)}:{drawn[1]}"]
        process = shell(*words, signals=",".join(signals[: 1 if last else 2]))
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP, process.communicate()
        os.kill(chance.choice(holders(tmp_path / "run.agents")), signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == (0 if last else -signal.SIGKILL), said
        words = ["resume", str(folder), *often]
    assert_same(in_process(tmp_path, 200), fedlsvi.load(folder))


@only_ci
def test_logs_are_read_where_the_agents_are(tmp_path: Path) -> None:
    """Pessimistic value iteration on Ray is the run in this process, to the bit."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    for m in range(4):
        write_records(record_episodes(env, 20 + m, agent=m), tmp_path / f"{m}.parquet")
    files = [tmp_path / f"{m}.parquet" for m in range(4)]
    run, here = (
        fedlsvi.offline(files, env=env, transport=transport, cohorts=2, progress=False)
        for transport in ("ray", "inprocess")
    )
    assert_same(run, here)
    assert run.policy.table.tobytes() == here.policy.table.tobytes()
    # and so is the policy's value, estimated from these logs
    logs = logged_worlds(files, like=env)
    found, same = (
        estimate_value(
            here.policy, logs, here.plan.features, repeats=3, transport=transport, cohorts=2
        )
        for transport in ("ray", "inprocess")
    )
    for name, number in same.row().items():
        assert name == "scalars" or getattr(found, name) == pytest.approx(number, abs=1e-9), name


@only_ci  # over frames in tests/algorithms/test_protected_records.py
@pytest.mark.parametrize("exchange", ["one-trip", "stepwise"])
def test_records_are_protected_where_the_agents_are(exchange: Any, tmp_path: Path) -> None:
    """With secure sums the model of exact ones in this process, and with noise that of the same
    secrets, to the bit; so is the value."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    for m in range(4):
        write_records(record_episodes(env, 20 + m, agent=m), tmp_path / f"{m}.parquet")
    logs = logged_worlds([tmp_path / f"{m}.parquet" for m in range(4)], like=env)
    how: dict[str, Any] = {"exchange": exchange, "aggregation": "secure"}
    exact = PEVI(4, **how | {"aggregation": "exact"}).learn(logs, progress=False)
    secure = PEVI(4, **how).learn(
        logs, progress=False, transport=partial(on_ray, cohorts=3, journal=tmp_path / "secure")
    )
    assert secure.w.tobytes() == exact.w.tobytes()
    assert secure.counts["sites"] == 3
    about = {"repeats": 2, "cohorts": 3}
    here, there = (
        estimate_value(
            exact.policy, logs, exact.plan.features, aggregation=way, transport=transport, **about
        )
        for way, transport in (("exact", "inprocess"), ("secure", "ray"))
    )
    assert there.value == pytest.approx(here.value, abs=1e-9)
    learner = PEVI(4, **how, privacy={"epsilon": 2.0, "delta": 1e-6})
    journals = tmp_path / "private"
    place = partial(on_ray, cohorts=3, journal=journals, durable=False)
    private = learner.learn(logs, progress=False, transport=place)
    session = learner.prepare(logs, None, cohorts=3)
    same = with_the_secrets_of(journals, session, [0, 1, 2])
    list(session.rounds())
    assert same.w.tobytes() == private.w.tobytes()
    assert private.w.tobytes() != exact.w.tobytes()
    assert private.epsilon_spent == 2.0

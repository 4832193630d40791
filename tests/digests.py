"""Proof that a refactoring changed no run: the same seeds give the same bits before and after.

    python tests/digests.py record before.json      # play all runs and write down their digests
    python tests/digests.py check before.json       # play them again; exits 1 on any difference

`--only PATTERN` chooses runs by a regular expression, `--list` names them. Settings whose defaults
may move are pinned, so that a file outlives new defaults. A digest has the bits of each part and a
few numbers of it. Bits hold on one kind of processor and with one set of libraries; with others
`check` says so and compares the numbers, up to 1e-9.

digests.json was recorded by commit 2fa7fd4, before sources, memories, heads and protections were
rooms of their own, and all its runs are still the same. Two things are not as they were then: by
default, Fed-LSVI has another bonus and another number of rounds (`PINNED`), and after the pass that
makes a policy to deploy agents say how well the model fits (`sent`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from llvmlite.binding import get_host_cpu_name
from safetensors.numpy import load_file
from threadpoolctl import threadpool_info, threadpool_limits

import fedlsvi
from fedlsvi import FedLSVIError, algorithms, envs, features

Digest = dict[str, dict[str, Any]]
"""Of each part of a run the hash, and what `numbers` gives."""

CLOSE = 1e-9

PINNED = {"bonus": "constant", "gamma": 20.0}
"""Settings of every run whose algorithm has them, unless the run says otherwise."""

# ── MAY MOVE: the next four functions; everything else keeps to the public interface ───────────


def over_frames(plan: Any) -> Any:
    """The transport of frames between two threads, for `learn(transport=over_frames)`."""
    from transports_over_frames import over_frames  # beside this file

    return over_frames(2)(plan)


def packed_gram(run: Any) -> np.ndarray:
    """Λ as it is kept: (H, d) where it is diagonal, because Taxi's (H, d, d) is too large."""
    return np.asarray(run.gram_packed)


def sent(run: Any) -> list[dict[str, int]]:
    """Scalars and bytes by category, without what says how well a model fits."""
    amounts = [dict(run.ledger.scalars), dict(run.ledger.bytes)]
    fit = getattr(run, "fit", None)
    if fit is not None:
        amounts[0]["up_stats"] -= fit.size
        amounts[1]["up_stats"] -= fit.nbytes
    return [{what: n for what, n in part.items() if n} for part in amounts]


def flare_result(project: Path) -> Any:
    """What the server of a federation has learned: its run folder, or the files that it wrote."""
    places = {path.parent for path in project.rglob("records.jsonl")}
    for folder in sorted(places, key=lambda place: (len(place.parts), place)):
        try:
            return fedlsvi.load(folder)
        except FedLSVIError:
            continue  # no run folder
    (folder,) = places
    model = load_file(folder / "model.safetensors")
    ledger = SimpleNamespace(**json.loads((folder / "ledger.json").read_text()))
    ends = [json.loads(row)["last"] for row in (folder / "records.jsonl").read_text().splitlines()]
    taus = [1, *(end + 1 for end in ends)]
    return SimpleNamespace(taus=taus, w=model["w"], gram_packed=model["gram"], ledger=ledger)


def short(value: Any) -> str:
    """The beginning of the SHA-256 of an array (type, shape and bits) or of plain values."""
    if isinstance(value, np.ndarray):
        content = f"{value.dtype.str}{value.shape}".encode() + value.tobytes()
    else:
        content = json.dumps(value, sort_keys=True, default=int).encode()
    return sha256(content).hexdigest()[:16]


def numbers(value: Any) -> dict[str, Any]:
    """What another processor must repeat: amounts as they are, and of an array its size and, up to
    rounding, its last entry, its norm and its product with fixed draws, which shows the order."""
    if isinstance(value, list) and isinstance(value[0], dict):
        return {"amounts": value}
    flat = np.asarray(value, float).ravel()
    product = np.random.default_rng(0).random(flat.size) @ flat
    return {"size": flat.size, "close": [float(flat[-1]), float(np.linalg.norm(flat)), product]}


def digest(run: Any, federated: bool = False) -> Digest:
    """A digest of each part of a run.

    Args:
        run: What `learn`, `fedlsvi.load` or `flare_result` returned.
        federated: Leave out what real sites do not repeat or know: the number of control messages,
            which depends on who calls first, and the regret.
    """
    ledger = sent(run)
    parts = {"taus": list(run.taus), "w": run.w, "gram": packed_gram(run), "ledger": ledger}
    if federated:
        for amounts in ledger:
            amounts.pop("signal", None)
    else:
        outcome = "mean_returns" if run.regret is None else "regret"
        parts[outcome] = getattr(run, outcome)
    return {part: {"bits": short(value), **numbers(value)} for part, value in parts.items()}


def made(algorithm: str, **settings: Any) -> Any:
    """The learner with these settings, and with those of `PINNED` that it has."""
    has = algorithms.entry(algorithm).parameters()
    pinned = {name: value for name, value in PINNED.items() if name in has}
    return algorithms.make(algorithm, **{"n_agents": 3, **pinned, **settings})


def learned(
    env: Any, T: int = 150, algorithm: str = "fed-lsvi", options: Any = None, **settings: Any
) -> Digest:
    """Play T episodes; `options` are further arguments of `learn`, and three agents the default."""
    learner = made(algorithm, **settings)
    return digest(learner.learn(env, T, seed=7, progress=False, **(options or {})))


def in_a_folder(env: Any) -> Digest:
    """A run that is written as it goes, and read back."""
    with tempfile.TemporaryDirectory() as scratch:
        learner = made("fed-lsvi")
        learner.learn(env, 150, seed=7, progress=False, folder=f"{scratch}/run")
        return digest(fedlsvi.load(f"{scratch}/run"))


def on_flare() -> Digest:
    """A server and three sites of NVIDIA FLARE, real processes on loopback."""
    command = [sys.executable, "-m", "fedlsvi", "federate", "demo", "--episodes", "120"]
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "project"
        done = subprocess.run([*command, "--out", project], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return digest(flare_result(project), federated=True)


def room() -> Any:
    """MiniGrid's empty room of 5 × 5 as a finite world: where the agent is and how it is turned."""
    shown = gymnasium.make("minigrid:MiniGrid-Empty-Random-5x5-v0")
    own, states = shown.unwrapped, gymnasium.spaces.Discrete(100)
    return gymnasium.wrappers.TransformObservation(
        shown, lambda seen: int(np.dot(own.agent_pos, (4, 20)) + own.agent_dir), states
    )


# what these need to learn something in few episodes; the others learn with their defaults
SETTINGS = {
    "periodic": {"period": 20}, "fedq-hoeffding": {"c": 0.01}, "fedq-bernstein": {"c": 0.02},
    "fedq-advantage": {"c": 0.3}, "fed-ucbvi": {"c": 0.3},
}  # fmt: skip


def cases() -> Iterator[tuple[str, Callable[[], Digest]]]:
    """Every run: its name, and the function that plays it."""
    linear = envs.make("random-linear", n_states=10, n_actions=3, dim=5, horizon=4, seed=1)
    garnet = envs.make("garnet", n_states=6, n_actions=3, horizon=4, seed=1)
    real = envs.make("continuous-linear", dim=5, n_actions=3, horizon=3, seed=1, points=64)
    kinds = {"dense": linear, "one-hot": garnet, "continuous": real}
    for name in algorithms.names():
        if algorithms.entry(name).offline:
            continue
        own = SETTINGS.get(name, {})
        yield f"algorithm/{name}/dense", partial(learned, linear, algorithm=name, **own)
        yield f"algorithm/{name}/one-hot", partial(learned, garnet, 100, name, **own)

    for name, env in {
        "random-linear": linear, "garnet": garnet, "river-swim": envs.RiverSwim(horizon=10),
        "hard-chain": envs.HardChain(dim=4, horizon=4), "deep-sea": envs.DeepSea(6),
        "combination-lock": envs.CombinationLock(5, 4, 6), "n-chain": envs.NChain(6),
        "random-mdp": envs.RandomMDP(seed=3), "xi-close": envs.xi_close(linear, 3, xi=0.1),
    }.items():  # fmt: skip
        for preset in ("practical", "paper"):
            own = {"preset": preset, "gamma": 20.0, "xi": 0.1 if name == "xi-close" else 0.0}
            yield f"finite/{name}/{preset}", partial(learned, env, 200, **own)

    phi = np.random.default_rng(5).dirichlet(np.ones(4), (6, 3))
    for name, chosen in {
        "array": phi, "table": features.TableFeatures(phi), "low-rank": features.LowRankFeatures(4),
        "one-hot": features.OneHot(), "aggregate": features.AggregateFeatures(3),
    }.items():  # fmt: skip
        yield f"features/{name}", partial(learned, garnet, options={"features": chosen})
    yield "features/one-hot-unpacked", partial(learned, garnet, packing="dense")

    for cut in ({"cohorts": 2}, {"cohorts": 7}, {"block": 5}, {"cohorts": 3, "block": 16}):
        name = "-".join(f"{key}-{n}" for key, n in cut.items())
        long = partial(learned, T=400, options=cut, n_agents=7, gamma=100.0)
        for kind, env in kinds.items():
            yield f"cut/{kind}/{name}", partial(long, env)
    yield "cut/many-agents", partial(learned, linear, 40, n_agents=200, gamma=5.0)
    yield "cut/every-episode", partial(learned, linear, 60, gamma=1.0)
    yield "run-folder", partial(in_a_folder, linear)

    for preset in ("practical", "paper"):
        yield f"continuous/fed-lsvi/{preset}", partial(learned, real, preset=preset, gamma=20.0)
    for name in ("centralised", "independent", "low-switching", "rare-switch", "periodic", "stale"):
        yield f"continuous/{name}", partial(learned, real, 80, name, **SETTINGS.get(name, {}))
    for name, own in {
        "fourier": {"n_frequencies": 4}, "rbf": {"centres": 4}, "tiles": {"tilings": 2, "tiles": 4},
        "fourier-basis": {"order": 3}, "polynomial": {},
    }.items():  # fmt: skip
        chosen = {"features": features.make(name, **own)}
        yield f"continuous/features-{name}", partial(learned, real, 80, options=chosen, gamma=10.0)

    waves = features.FourierFeatures(6, bandwidth=[1.5, 1.5, 0.15, 1.5])
    pole, box = {"horizon": 40, "features": waves}, {"value_range": 40, "lam": 0.01, "beta": 0.5}
    hill = {"horizon": 40, "reward_range": (-1.0, 0.0), "features": features.RBFFeatures(3)}
    grid = {"horizon": 20, "features": features.OneHot()}
    stepped = envs.as_environment("FrozenLake-v1", horizon=30, tables=False)
    for name, env, T, own, settings in (
        ("frozen-lake", "FrozenLake-v1", 300, {"horizon": 30}, {"value_range": 1, "gamma": 100.0}),
        ("frozen-lake-stepped", stepped, 60, {}, {"value_range": 1, "gamma": 20.0}),
        ("taxi", "Taxi-v4", 80, {"horizon": 10}, {"lam": 1e-4, "beta": 0.07, "gamma": 100.0}),
        ("cliff-walking", "CliffWalking-v1", 100, {"horizon": 15}, {"gamma": 40.0}),
        ("minigrid-stepped", room, 20, grid, {"value_range": 1, "gamma": 10.0}),
        ("cart-pole", "CartPole-v1", 40, pole, {**box, "gamma": 30.0}),
        ("cart-pole-stale", "CartPole-v1", 40, pole, {**box, "algorithm": "stale", "gamma": 30.0}),
        ("cart-pole-periodic", "CartPole-v1", 40, pole, {"algorithm": "periodic", "period": 10}),
        ("mountain-car", "MountainCar-v0", 20, hill, {"gamma": 10.0}),
    ):
        yield f"gym/{name}", partial(learned, env, T, options=own, **settings)

    keep, frames = {"gamma": 8.0, "overshoot": "keep"}, {"transport": over_frames}
    for name, env in (kinds | {"cart-pole": "CartPole-v1"}).items():
        own = pole if name == "cart-pole" else {}
        yield f"keep/{name}", partial(learned, env, 60, options=own, **keep)
        yield f"threads/{name}", partial(learned, env, 60, options=own | frames, gamma=8.0)
        yield f"threads/{name}-keep", partial(learned, env, 60, options=own | frames, **keep)
    yield "ray", partial(learned, linear, options={"transport": "ray", "cohorts": 2}, gamma=8.0)
    yield "flare", on_flare


def libraries() -> str:
    """What the bits of a run depend on beside our own code."""
    names = [f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "gymnasium")]
    kinds = {str(blas["architecture"]) for blas in threadpool_info() if "architecture" in blas}
    processor = get_host_cpu_name()
    return ", ".join([f"python {platform.python_version()}", *names, *sorted(kinds), processor])


def parts_apart(now: Digest, then: Digest, bits: bool = False) -> list[str]:
    """The parts in which a run is not what was recorded: in bits, or in numbers."""

    def same(part: str) -> bool:
        if part not in now or part not in then:
            return False
        a, b = now[part], then[part]
        if bits:
            return bool(a["bits"] == b["bits"])
        exact = all(a.get(key) == b.get(key) for key in ("size", "amounts"))
        return exact and np.allclose(
            a.get("close", 0.0), b.get("close", 0.0), CLOSE, CLOSE, equal_nan=True
        )

    return [part for part in sorted(now | then) if not same(part)]


def main() -> int:
    """Record or check; 1 where a run fails, differs, or is in one of the two lists only."""
    parser = argparse.ArgumentParser(description="Prove that a refactoring changed no run.")
    parser.add_argument("action", nargs="?", choices=["record", "check"])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression")
    parser.add_argument("--list", action="store_true", help="name the runs and play none")
    options = parser.parse_args()
    chosen = {name: play for name, play in cases() if re.search(options.only, name)}
    if options.list:
        print("\n".join(chosen))
        return 0
    if options.file is None:
        parser.error("give record or check, and a file")
    checks, began = options.action == "check", time.perf_counter()
    before = json.loads(options.file.read_text()) if checks else {"by": libraries(), "runs": {}}
    bits = before["by"] == libraries()
    if not bits:
        print(f"recorded by {before['by']}; this is {libraries()}: numbers are compared, not bits")
    os.environ["PYTHONPATH"] = str(Path(fedlsvi.__file__).resolve().parents[1])  # for Ray and FLARE
    print(f"fedlsvi in {os.environ['PYTHONPATH']}", flush=True)
    digests: dict[str, Digest] = {}
    gone = [name for name in before["runs"] if name not in chosen and re.search(options.only, name)]
    print("".join(f"{name:<50}DIFFERENT: is gone\n" for name in gone), end="")
    bad = list(gone)
    for name, play in chosen.items():
        since = time.perf_counter()
        try:
            digests[name] = play()
            word = "recorded"
            if checks and name in before["runs"]:
                apart = parts_apart(digests[name], before["runs"][name], bits)
                word = f"DIFFERENT: {', '.join(apart)}" if apart else "same"
            elif checks:
                word = "not recorded"
        except Exception as error:
            word = f"FAILED: {type(error).__name__}: {error}"
        bad += [name] if word.startswith(("DIFFERENT", "FAILED")) else []
        print(f"{name:<40}{time.perf_counter() - since:6.1f} s  {word}", flush=True)
    print(f"{len(chosen)} runs in {time.perf_counter() - began:.0f} s, wrong: {bad or 'none'}")
    if not checks:
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in digests.items())
        by = json.dumps(before["by"])
        options.file.write_text(f'{{"by": {by}, "runs": {{\n{rows}\n}}}}\n')
    return 1 if bad else 0


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        sys.exit(main())

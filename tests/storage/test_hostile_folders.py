"""A folder from someone else touches nothing outside it, and is refused in a sentence
(reliability 14): links, foreign names, resealed manifests, nested JSON.

A seal is an unkeyed hash, so that whoever alters a file can seal it again; so do these tests.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import tomllib
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from fedlsvi.errors import DamagedFile, FedLSVIError, StoreError
from fedlsvi.policy import Policy
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.report import write_report
from fedlsvi.storage import files, seeds, settings_file
from fedlsvi.storage.settings_file import Job
from repeats import repeats

pytestmark = pytest.mark.usefixtures("sketched")

Look = Callable[[Path], Any]


class Stop(Exception):
    pass


def stop(record: RoundRecord) -> None:
    if record.k == 3:
        raise Stop


def resume(folder: Path) -> Any:
    return fedlsvi.resume(folder, progress=False, threads=1)


def act(folder: Path) -> Any:
    return fedlsvi.load(folder).policy.values


def summary(folder: Path) -> Any:
    return fedlsvi.load(folder).summary()


LOOKS: tuple[Look, ...] = (summary, act, resume)


def begun(folder: Path, env: Any, features: Any, episodes: int) -> Path:
    """A run that was broken off after three rounds, with two checkpoints."""
    with pytest.raises(Stop):
        FedLSVI(n_agents=2, gamma=4.0, beta=0.5, lam=1.0).learn(
            env, episodes, seed=3, progress=False, threads=1, folder=folder, features=features,
            checkpoint_seconds=0.0, observers=[stop],
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders of a table, of arrays and of continuous states, and a policy."""
    home = tmp_path_factory.mktemp("kept")
    table = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")
    arrays = fedlsvi.envs.FiniteMDP(table.P, table.r, horizon=3, phi=table.phi)
    smooth = ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=1)
    found = {
        "named": begun(home / "named", table, None, 60),
        "arrays": begun(home / "arrays", arrays, None, 60),
        "continuous": begun(home / "continuous", smooth, "rbf", 40),
    }
    assert (found["continuous"] / "history").is_dir()
    fedlsvi.load(found["named"]).policy.save(home / "table")
    fedlsvi.load(found["continuous"]).policy.save(home / "linear")
    return found | {"table": home / "table", "linear": home / "linear"}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A folder of somebody else with names that ours could have; it is compared at the end."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("notes.txt", "000000001-000000002.safetensors", "000001.json", "records.jsonl"):
        (folder / name).write_bytes(b"precious\n" * 9)
    before = content(folder)
    yield folder
    assert content(folder) == before


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mode) for path in folder.iterdir()}


def copied(source: Path, tmp_path: Path) -> Path:
    """A copy of a folder. What the copy before still has as it was stays where it is."""
    target = tmp_path / "run"
    before, now = state(source), state(target)
    for name, found in sorted(now.items(), reverse=True):  # what is in a folder before the folder
        if before.get(name) != found:
            path = target / name
            (shutil.rmtree if found is FOLDER else Path.unlink)(path)
    for name, found in sorted(before.items()):
        if now.get(name) != found:
            path = target / name
            path.mkdir() if found is FOLDER else shutil.copy2(source / name, path)
    return target


FOLDER = (-1, -1, -1)


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Path → mode, size and time of the last change of all that is in a folder, and of itself."""
    if not folder.exists():
        return {}
    found = {".": FOLDER}
    for path in folder.rglob("*"):
        of = path.lstat()
        plain = (of.st_mode, of.st_size, of.st_mtime_ns)
        found[str(path.relative_to(folder))] = FOLDER if S_ISDIR(of.st_mode) else plain
    return found


def reseal(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Alter a sealed file and seal it again."""
    table = json.loads(path.read_bytes())
    del table["sha256"]
    changed = change(table)
    path.write_bytes(files.sealed(table if changed is None else changed))


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("*.json"))


def only_newest(run: Path) -> Path:
    """So that nothing can fall back to the checkpoint before."""
    for path in (run / "checkpoints").iterdir():
        if path.stem != newest(run).stem:
            path.unlink()
    return newest(run)


@pytest.mark.parametrize("look", LOOKS[::2])
@pytest.mark.parametrize("name", ["history", "checkpoints"])
def test_a_linked_folder_is_refused(
    kept: dict[str, Path], tmp_path: Path, canary: Path, name: str, look: Look
) -> None:
    run = copied(kept["continuous"], tmp_path)
    for path in (run / name).iterdir():
        shutil.copy(path, canary / path.name)
    shutil.rmtree(run / name)
    (run / name).symlink_to(canary)
    before = content(canary)
    with refused(StoreError, "linked-file", name):
        look(run)
    assert content(canary) == before
    for path in canary.iterdir():
        if path.name not in ("notes.txt", "000001.json", "records.jsonl"):
            path.unlink()
    (canary / "000000001-000000002.safetensors").write_bytes(b"precious\n" * 9)
    (canary / "000001.json").write_bytes(b"precious\n" * 9)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("name", ["records.jsonl", "regret.bin"])
def test_a_link_to_a_file_is_neither_cut_nor_filled(
    kept: dict[str, Path], tmp_path: Path, canary: Path, name: str, hard: bool
) -> None:
    """The manifest says that nothing of it counts yet, so that all of it may be cut."""
    run = copied(kept["named"], tmp_path)
    (run / name).unlink()
    (os.link if hard else os.symlink)(canary / "notes.txt", run / name)
    reseal(
        only_newest(run),
        lambda table: (
            table["appended"].update({name: files.stamp(b"")}) or table["plain"].update(t=0, k=0)
        ),
    )
    with pytest.raises(StoreError):
        resume(run)


def test_every_link_in_a_run_folder_is_refused(kept: dict[str, Path], tmp_path: Path) -> None:
    """Even one that leads to the very file."""
    for kind in ("arrays", "continuous"):
        for source in sorted(path for path in kept[kind].rglob("*") if path.is_file()):
            run = copied(kept[kind], tmp_path)
            only_newest(run)
            path = run / source.relative_to(kept[kind])
            if not path.exists():  # of the older checkpoint
                continue
            path.unlink()
            path.symlink_to(source)
            with refused(StoreError, "linked-file", path.name):
                resume(run)


@pytest.mark.parametrize("name", [".lock", "checkpoints/.000004.json.tmp", ".summary.json.tmp"])
def test_links_at_names_that_are_made_while_playing(
    kept: dict[str, Path], tmp_path: Path, canary: Path, name: str
) -> None:
    run = copied(kept["named"], tmp_path)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(canary / "notes.txt")
    if name == ".lock":
        with refused(StoreError, "linked-file", ".lock"):
            resume(run)
    else:  # it is ours, and only the link goes
        resume(run)


def test_the_folder_itself_may_be_a_link(kept: dict[str, Path], tmp_path: Path) -> None:
    run = copied(kept["continuous"], tmp_path)
    (tmp_path / "link").symlink_to(run)
    assert resume(tmp_path / "link").w.tobytes() == fedlsvi.load(run).w.tobytes()


def test_only_our_own_names_are_pruned(kept: dict[str, Path], tmp_path: Path) -> None:
    run = copied(kept["continuous"], tmp_path)
    foreign = [run / "checkpoints" / name for name in ("notes.json", "1.json", "0000001.txt")]
    foreign += [run / "history" / name for name in ("notes.safetensors", "000000001.safetensors")]
    ours = [run / "checkpoints" / ".000009.json.tmp", run / "history" / "000000900-000000901.safetensors"]  # fmt: skip # noqa: E501
    for path in foreign + ours:
        path.write_bytes(b"x")
    resume(run)
    assert [path.exists() for path in foreign] == [True] * len(foreign)
    assert [path.exists() for path in ours] == [False] * len(ours)


def test_a_pipe_does_not_block(kept: dict[str, Path], tmp_path: Path) -> None:
    run = copied(kept["named"], tmp_path)
    (run / "records.jsonl").unlink()
    os.mkfifo(run / "records.jsonl")
    with refused(StoreError, "not-a-file", "records.jsonl"):
        resume(run)


DEEP = b"[" * 100_000
NESTED = ("versions.json", "parameters.json", "checkpoints/000003.json", "records.jsonl")


@pytest.mark.parametrize("data", [DEEP, b'{"a":' * 100_000, b"[" * 500 + b"]" * 500, b"9" * 5000])
@pytest.mark.parametrize("name", NESTED)
def test_nested_json_gets_a_sentence(
    kept: dict[str, Path], tmp_path: Path, name: str, data: bytes
) -> None:
    run = copied(kept["named"], tmp_path)
    only_newest(run)
    (run / name).write_bytes(data)
    stamp_again(run, name)
    for look in LOOKS:
        with pytest.raises(DamagedFile):
            look(run)


@pytest.mark.parametrize("data", ["a = " + "[" * 5000 + "]" * 5000, "a" + ".a" * 5000 + " = 1"])
def test_nested_toml_gets_a_sentence(kept: dict[str, Path], tmp_path: Path, data: str) -> None:
    run = copied(kept["named"], tmp_path)
    (run / "settings.toml").write_text(data)
    stamp_again(run, "settings.toml")
    with refused(FedLSVIError, "bad-settings-file", "settings.toml"):
        fedlsvi.load(run)
    with refused(FedLSVIError, "bad-settings-file", "settings.toml"):
        settings_file.read(run / "settings.toml")


def stamp_again(run: Path, name: str) -> None:
    """Make the manifests vouch for what a file is now."""
    stamp = files.stamp((run / name).read_bytes())
    try:
        if name in ("records.jsonl", "regret.bin"):
            reseal(newest(run), lambda table: table["appended"].update({name: stamp}))
        elif name.endswith(".safetensors") and "checkpoints" in name:
            reseal(newest(run), lambda table: table.update(state=stamp))
        elif "/" not in name and name != "versions.json":
            reseal(run / "versions.json", lambda table: table["files"].update({name: stamp}))
    except (KeyError, ValueError):
        pass


def safetensors(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


HEADERS = [
    struct.pack("<Q", 2**63) + b"{}",
    struct.pack("<Q", 90_000_000) + b"{",
    struct.pack("<Q", len(DEEP)) + DEEP,
    safetensors({"w": {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, b"x" * 8),
    safetensors({"w": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}}, b"x" * 8),
    safetensors({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, b"x" * 8),
    safetensors({"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, b"x" * 8),
    safetensors({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, b"x" * 8),
    safetensors([]),
    b"",
]


@pytest.mark.parametrize("data", HEADERS)
def test_absurd_safetensors_get_a_sentence(
    kept: dict[str, Path], tmp_path: Path, data: bytes
) -> None:
    run = copied(kept["named"], tmp_path)
    path = only_newest(run).with_suffix(".safetensors")
    path.write_bytes(data)
    stamp_again(run, f"checkpoints/{path.name}")
    for look in LOOKS:
        with pytest.raises(DamagedFile):
            look(run)


def test_actions_that_do_not_exist_are_refused(kept: dict[str, Path], tmp_path: Path) -> None:
    """Compiled code would look them up without a check."""
    run = copied(kept["named"], tmp_path)
    path = only_newest(run).with_suffix(".safetensors")
    arrays = files.read_arrays(path)
    files.write_arrays(path, arrays | {"policy": arrays["policy"] + 10**6})
    stamp_again(run, f"checkpoints/{path.name}")
    for look in (act, resume):
        with refused(DamagedFile, "damaged", "policy"):
            look(run)
    policy = copied(kept["table"], tmp_path)
    arrays = files.read_arrays(policy / "policy.safetensors")
    stamp = files.write_arrays(policy / "policy.safetensors", {"actions": arrays["actions"] + 99})
    reseal(policy / "policy.json", lambda head: head.update(arrays=stamp))
    with refused(DamagedFile, "damaged", "99"):
        Policy.load(policy)


@pytest.mark.parametrize("name", ["../elsewhere/a.safetensors", "/etc/passwd", "..", "sub/a"])
def test_names_from_a_file_stay_inside(
    kept: dict[str, Path], tmp_path: Path, canary: Path, name: str
) -> None:
    run = copied(kept["continuous"], tmp_path)
    reseal(only_newest(run), lambda table: table["history"][0].update(name=name))
    with pytest.raises(DamagedFile):
        resume(run)
    run = copied(kept["arrays"], tmp_path)
    reseal(run / "versions.json", lambda t: t["files"].update({name: files.stamp(b"")}))
    with refused(DamagedFile, "bad-name", name):
        resume(run)


def test_a_run_reads_no_arrays_from_elsewhere(kept: dict[str, Path], tmp_path: Path) -> None:
    run = copied(kept["arrays"], tmp_path)
    shutil.copy(run / "environment.safetensors", tmp_path / "other.safetensors")
    text = (run / "settings.toml").read_text()
    other = text.replace("environment.safetensors", "../other.safetensors")
    (run / "settings.toml").write_text(other)
    stamp_again(run, "settings.toml")
    for look in LOOKS:
        with refused(DamagedFile, "foreign-file", "../other.safetensors"):
            look(run)


def test_the_members_of_a_family_are_not_links(
    kept: dict[str, Path], tmp_path: Path, canary: Path
) -> None:
    table = {"env": {"name": "river-swim"}, "episodes": 5}
    seeds.begin(tmp_path / "ten", Job.parse(table), [0, 1])
    (tmp_path / "ten" / "seed-1").symlink_to(canary)
    with refused(StoreError, "linked-file", "seed-1"):
        seeds.expand([tmp_path / "ten"])
    for odd in (["../x"], [-1], "0", [True], [2**70]):
        reseal(tmp_path / "ten" / "seeds.json", lambda table, odd=odd: table.update(seeds=odd))
        with pytest.raises(DamagedFile):
            seeds.read(tmp_path / "ten")


def test_a_report_follows_no_link(kept: dict[str, Path], tmp_path: Path, canary: Path) -> None:
    pytest.importorskip("matplotlib")
    run = copied(kept["named"], tmp_path)
    (run / "plots").symlink_to(canary)
    with refused(StoreError, "linked-file", "plots"):
        write_report([fedlsvi.load(run)], run)
    (run / "plots").unlink()
    (run / ".report.html.tmp").symlink_to(canary / "notes.txt")
    write_report([fedlsvi.load(run)], run)
    assert not (run / "report.html").is_symlink()


def test_a_linked_policy_is_refused(kept: dict[str, Path], tmp_path: Path) -> None:
    for name in ("policy.json", "policy.safetensors"):
        folder = copied(kept["linear"], tmp_path)
        (folder / name).unlink()
        (folder / name).symlink_to(kept["linear"] / name)
        with refused(StoreError, "linked-file", name):
            Policy.load(folder)


ODD: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, -(10**400), 0.5, float("nan"), float("inf"), "",
    "x", "../x", "\ud800", "\0", [], {}, [[]], [None], ["x"] * 3, {"x": 1}, [1, 2, 3], [10**30],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = [path] if path else []
    return found + [p for key, inner in items for p in places(inner, (*path, key))]


def mutated(value: Any, rng: random.Random, most: int = 2**63) -> Any:
    """One to three places replaced, removed, doubled or renamed.

    `most`: sizes above it are not tried where they would be granted.
    """
    for _ in range(rng.choice([1, 1, 2, 3])):
        every = places(value)
        if not every:
            return value
        *way, key = rng.choice(every)
        inner = value
        for step in way:
            inner = inner[step]
        how = rng.randrange(6)
        if how == 0:
            del inner[key]
        elif how == 1 and isinstance(inner, dict):
            inner[rng.choice(["x", "", "../x", "t"])] = inner.pop(key)
        elif how == 2 and isinstance(inner, list):
            inner += [deepcopy(inner[key])] * rng.choice([1, 100])
        elif how == 3 and type(inner[key]) is int:
            inner[key] += rng.choice([step for step in (-1, 1, 10**6, 2**40) if step < most])
        else:
            inner[key] = deepcopy(rng.choice([odd for odd in ODD if odd != 2**31 or odd < most]))
    return value


def all_looks(folder: Path) -> None:
    """Every one of `LOOKS`, whichever fails; the folder is loaded once for two of them."""
    with suppress(FedLSVIError):
        run = fedlsvi.load(folder)
        with suppress(FedLSVIError):
            run.summary()
        run.policy.values  # noqa: B018
    resume(folder)


def quiet(look: Look, folder: Path) -> None:
    """Whatever is wrong is said in an error of this package, or does no harm."""
    with suppress(FedLSVIError):
        look(folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["named", "arrays", "continuous"])
@pytest.mark.parametrize("name", ["versions.json", "parameters.json", "manifest", "records.jsonl"])
def test_mutated_manifests_raise_nothing_foreign(
    kept: dict[str, Path], tmp_path: Path, canary: Path, kind: str, name: str
) -> None:
    source, rng = kept[kind], random.Random(f"{kind} {name}")
    for _ in range(repeats(20, 150)):
        run = copied(source, tmp_path)
        only_newest(run)
        path = newest(run) if name == "manifest" else run / name
        lines = path.read_bytes().splitlines() if name == "records.jsonl" else [path.read_bytes()]
        tables = [json.loads(line) for line in lines]
        for table in tables:
            table.pop("sha256", None)
        tables[-1] = mutated(tables[-1], rng)
        sealed = name in ("versions.json", "manifest")
        try:
            data = [files.sealed(t) if sealed else json.dumps(t).encode() + b"\n" for t in tables]
        except (UnicodeEncodeError, TypeError):
            continue
        path.write_bytes(b"".join(data))
        if name != "manifest":
            stamp_again(run, name)
        quiet(all_looks, run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["named", "arrays", "continuous"])
def test_mutated_settings_raise_nothing_foreign(
    kept: dict[str, Path], tmp_path: Path, canary: Path, kind: str
) -> None:
    rng = random.Random(kind)
    for _ in range(repeats(30, 300)):
        run = copied(kept[kind], tmp_path)
        table = mutated(tomllib.loads((run / "settings.toml").read_text()), rng, 1000)
        try:
            (run / "settings.toml").write_text(settings_file.dump(table))
        except (FedLSVIError, UnicodeEncodeError, TypeError, AttributeError):
            continue
        stamp_again(run, "settings.toml")
        quiet(all_looks, run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["table", "linear"])
def test_mutated_policies_raise_nothing_foreign(
    kept: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    rng = random.Random(kind)
    state = {"table": 0, "linear": np.full(1, 0.5)}[kind]
    Policy.load(kept[kind]).action(state, 1)  # so that what is altered is the only reason
    for _ in range(repeats(150, 1500)):
        folder = copied(kept[kind], tmp_path)
        try:
            reseal(folder / "policy.json", lambda head: mutated(head, rng))
        except UnicodeEncodeError:
            continue
        quiet(lambda path: Policy.load(path).action(state, 1), folder)

"""What a site's files and logs hold: no record, no id, no text of the records."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import DamagedFile, InvalidInput, MessageRefused
from fedlsvi.logs.bins import Bins
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.remote.account import Account
from fedlsvi.remote.codec import HEADER_BYTES
from fedlsvi.remote.mail.letter import Sealed
from fedlsvi.remote.mail.site import MailSite
from fedlsvi.storage import settings_file
from mailing import NAMES, contributions, logs, study_of

CANARY = "Canary-7f3a"
PRIVATE = {"epsilon": 3.0, "delta": 1e-6}


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation": "exact"},
        {"aggregation": "secure"},
        {"aggregation": "secure", "privacy": PRIVATE},
    ],
    ids=["exact", "secure", "private"],
)
def test_no_canary_sings(settings: dict[str, Any], tmp_path: Path) -> None:
    """Ids and texts of records are in nothing that a site writes, nor is a number of theirs where
    masks or noise hide the sums."""
    data, paid = logs(), 0.123456789012345
    for name, log in data.items():
        log["episode"] = np.array([f"{CANARY}-{name}-{e}" for e in log["episode"]], dtype=object)
        log["note"] = np.array([f"{CANARY} says {i}" for i in range(len(log["step"]))])
        log["reward"] = np.full(len(log["step"]), paid)
    study = study_of(tmp_path, settings=settings)
    paths = contributions(study, tmp_path, data)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {*paths} <= {*written}
    for path in written:
        content = path.read_bytes()
        assert CANARY.encode() not in content
        assert repr(paid).encode() not in content
        if study.hidden:
            assert struct.pack("<d", paid) not in content
    about = [Sealed.read(path, study).letter.about for path in paths]
    assert [list(one) for one in about] == [["episodes"]] * len(NAMES)


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_no_canary_sings_on_the_command_line(
    aggregation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Tables of a clinic by a recipe, as they are typed: ids, notes and a cell that is no number
    are in no file beside the tables, and in nothing that is printed."""
    monkeypatch.chdir(tmp_path)
    recipe = {
        "hours": 4, "steps": 3, "tables": {"ward": {"stay": "stay", "time": "t"}},
        "stays": {"stay": "stay", "patient": "who", "outcome": "died",
                  "rewards": {"yes": 0, "no": 1}},
        "states": [{"name": "lactate", "take": "max", "missing": 1.0, "edges": [2, 4]}],
        "actions": [{"name": "fluids", "take": "sum", "edges": [1, 500]}],
    }  # fmt: skip
    Path("recipe.toml").write_text(settings_file.dump(recipe))
    tables = []
    for m, name in enumerate(NAMES):
        assert main(["study", "key", name, "--kit", name]) == 0
        rng = np.random.default_rng(m)
        rows = [f"{CANARY}-{m}-{i},{CANARY}-who-{m}-{i},{4 * h},{'yes' if i % 3 else 'no'},"
                f"{CANARY if i == h == 1 else rng.uniform(0, 8):},{rng.uniform(0, 900)},{CANARY}"
                for i in range(12) for h in range(3)]  # fmt: skip
        tables.append(tmp_path / f"{name}.csv")
        tables[-1].write_text("\n".join(["stay,who,t,died,lactate,fluids,note", *rows]))
    init = ["study", "init", "--name", "ward", "--episodes", "50", "--recipe", "recipe.toml"]
    keys = [word for name in NAMES for word in ("--site", f"{name}/{name}.site")]
    assert main([*init, *keys, "--set", f"aggregation={aggregation}"]) == 0
    contribute = ["contribute", "study.toml", "--kit"]
    if aggregation == "secure":
        for name in NAMES:
            assert main([*contribute, name, "--keys"]) == 0
    sealed = [f"{name}.keys" for name in NAMES if aggregation == "secure"]
    for name in NAMES:
        assert main([*contribute, name, "--data", f"{name}.csv", "--yes", *sealed]) == 0
    said = capfd.readouterr()
    assert "1 values of lactate" in said.err  # it was read, and left out
    assert CANARY not in said.out + said.err
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {*tables}
    assert {tmp_path / f"{name}.contribution" for name in NAMES} <= written
    for path in written:
        assert CANARY.encode() not in path.read_bytes(), path


def test_a_private_study_is_booked_once_and_refused_beyond_the_limit(tmp_path: Path) -> None:
    """In the account that federations of these data use too."""
    settings = {"aggregation": "secure", "privacy": PRIVATE}
    study = study_of(tmp_path, settings=settings)
    for _ in range(2):
        contributions(study, tmp_path, logs())
    bookings = Account(tmp_path / "north" / "fedlsvi").bookings
    assert [(b.federation, b.epsilon) for b in bookings] == [(study.called, 3.0)]
    local = tmp_path / "north" / "local" / "fedlsvi.toml"
    local.parent.mkdir()
    local.write_text("[require]\ntotal_epsilon = 4.0\ndelta = 1e-6\n")
    second = study_of(tmp_path, settings=settings, seed=1)
    with refused(MessageRefused, "budget-spent"):
        contributions(second, tmp_path, logs())
    local.write_text('[require]\naggregation = "secure"\nepsilon = 1.0\n')
    with refused(InvalidInput, "protection-missing", "epsilon"):
        MailSite(second, tmp_path / "north")


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_a_kit_without_its_secrets_contributes_to_no_study_again(
    aggregation: str, tmp_path: Path
) -> None:
    """Restored without the folder that begins with a dot: other records, under new noise, would be
    a second release that nobody booked."""
    study = study_of(tmp_path, settings={"aggregation": aggregation, "privacy": PRIVATE})
    contributions(study, tmp_path, logs())
    shutil.rmtree(tmp_path / "north" / "fedlsvi" / ".secrets" / study.called)
    site = MailSite(study, tmp_path / "north")
    for _ in range(2):
        with refused(DamagedFile, "noise-lost"):
            if study.secure:
                site.keys()
            site.contribute(site.read(logs(episodes=25)["north"]), site.roster([]))


def test_what_is_shown_before_is_what_leaves(tmp_path: Path) -> None:
    """Counts, scalars and ε that a person decides on."""
    private = {"aggregation": "secure", "privacy": PRIVATE}
    for number, settings in enumerate(({"aggregation": "exact"}, private)):
        study = study_of(tmp_path, settings=settings, seed=number)
        site, log = MailSite(study, tmp_path / "east"), logs()["east"]
        facts = site.leaving(site.read(log))
        paths = contributions(study, tmp_path, logs())
        frames = Sealed.read(paths[0], study).letter.frames
        listed = 8 * (not study.hidden)  # how many cells are listed, which is no scalar
        assert len(frames[0]) == HEADER_BYTES + facts["bytes"] + listed
        assert facts["episodes"] == len(np.unique(log["episode"]))
        assert facts["epsilon_after"] == pytest.approx(3.0 * study.hidden)


def test_patients_are_counted(tmp_path: Path) -> None:
    """A study that protects patients takes logs that name them, each often enough."""
    privacy = PRIVATE | {"unit": "user", "episodes_per_user": 2}
    study = study_of(tmp_path, settings={"aggregation": "secure", "privacy": privacy})
    data, site = logs()["east"], MailSite(study, tmp_path / "east")
    with refused(InvalidInput, "patient-unknown"):
        site.read(data)
    for each, allowed in ((2, True), (3, False)):
        data["patient"] = np.array([f"{CANARY}-{e // each}" for e in data["episode"]], object)
        if allowed:
            assert site.read(data).episodes == len(np.unique(data["episode"]))
            continue
        with refused(InvalidRecord, "user-too-often", "3 episodes"):
            site.read(data)
    data["patient"] = np.arange(len(data["step"]))
    with refused(InvalidRecord, "patient-changes"):
        site.read(data)


def test_bins_make_states_of_numbers() -> None:
    """By hand: edges belong to the bin above them, and the last column is the fastest."""
    bins = Bins({"lactate": [2.0, 4.0], "sofa": [5.0]})
    seen = np.array([[1.9, 4.0], [2.0, 5.0], [4.0, 4.9], [9.0, 9.0]])
    assert bins.n_states == 6
    assert bins.states(seen).tolist() == [0, 3, 4, 5]

"""What a merge does not accept, and what a site does not write: one sentence each, with a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.errors import (
    DamagedFile,
    InvalidInput,
    InvalidSetting,
    MessageRefused,
    WrongVersion,
)
from fedlsvi.logs.recipe import Recipe
from fedlsvi.remote.audit import lines
from fedlsvi.remote.lost_bookings import state
from fedlsvi.remote.mail import letter
from fedlsvi.remote.mail.letter import Sealed
from fedlsvi.remote.mail.merge import merge
from fedlsvi.remote.mail.site import MailSite
from fedlsvi.remote.mail.study import Study, sizes_of
from mailing import NAMES, A, H, T, contributions, kits, logs, study_of

SECURE = {"aggregation": "secure"}


def table(study: Study) -> dict[str, Any]:
    return study.table()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Study, list[Path]]:
    study = study_of(tmp_path)
    return study, contributions(study, tmp_path, logs())


def test_missing_and_doubled(files: tuple[Study, list[Path]], tmp_path: Path) -> None:
    study, paths = files
    with refused(InvalidInput, "sites-missing", "south"):
        merge(study, paths[:2], tmp_path / "run", print)
    with refused(InvalidInput, "site-twice", "north"):
        merge(study, [*paths, paths[1]], tmp_path / "run", print)
    assert not (tmp_path / "run").exists()


def test_any_byte_that_was_changed_is_noticed(
    files: tuple[Study, list[Path]], tmp_path: Path
) -> None:
    study, paths = files
    data = paths[0].read_bytes()
    for at in [9, 40, len(data) // 3, len(data) // 2, len(data) - 100, len(data) - 1]:
        wrong = bytearray(data)
        wrong[at] ^= 1
        paths[0].write_bytes(wrong)
        with pytest.raises((DamagedFile, InvalidInput)):
            merge(study, paths, tmp_path / "run", print)
    for cut in (data[: len(data) // 2], data[:8], data[:-1]):
        paths[0].write_bytes(cut)
        with refused(DamagedFile, "altered", "east"):
            merge(study, paths, tmp_path / "run", print)
    paths[0].write_bytes(b"something else")
    with refused(InvalidInput, "not-a-letter"):
        merge(study, paths, tmp_path / "run", print)


def test_another_version(
    files: tuple[Study, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, paths = files
    monkeypatch.setattr(letter, "__version__", "99.0")
    with refused(WrongVersion, "other-version", "99.0"):
        merge(study, paths, tmp_path / "run", print)
    paths[0].write_bytes(b"FLSMAIL2" + paths[0].read_bytes()[8:])
    with refused(WrongVersion, "other-version"):
        merge(study, paths, tmp_path / "run", print)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed is 1 there and 0 here"),
        ({"bins": {"a": [1.0], "b": [5.0, 8.0]}}, "bins.b[1] is 8.0 there and 7.0 here"),
        ({"bins": {"b": [5.0, 7.0], "a": [1.0]}}, "order b, a"),
        ({"features": {"name": "aggregate", "groups": 2}}, "features.groups is missing here"),
        ({"actions": ["x", "y", "z"]}, "actions"),
    ],
)
def test_another_study_is_named_by_its_first_difference(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """Two sites that differ in features or bins, or in anything else."""
    rng = np.random.default_rng(0)
    data = logs()
    for log in data.values():
        log["action"] = np.array(["x", "y", "z"])[log["action"]] if "actions" in changes else (
            log["action"])  # fmt: skip
        del log["next_observation"], log["observation"]
        log["a"], log["b"] = rng.random(len(log["step"])) * 2, rng.random(len(log["step"])) * 9
    bins = {"a": [1.0], "b": [5.0, 7.0]}
    study = study_of(tmp_path, n_states=0, bins=bins)
    other = study_of(tmp_path, **{"n_states": 0, "bins": bins, **changes})
    assert study.digest != other.digest
    one, two = MailSite(study, tmp_path / "east"), MailSite(other, tmp_path / "north")
    for site, name in ((one, "east"), (two, "north")):
        if "actions" in changes and site is one:
            data[name]["action"] = np.unique(data[name]["action"], return_inverse=True)[1]
        content = site.contribute(site.read(data[name]), site.roster([]))
        (tmp_path / name / "file").write_bytes(content)
    paths = [tmp_path / name / "file" for name in ("east", "north")]
    with refused(InvalidInput, "other-study", "north", named):
        merge(study, paths, tmp_path / "run", print)


def test_a_stranger_and_a_file_of_the_other_kind(tmp_path: Path) -> None:
    study = study_of(tmp_path, settings=SECURE)
    paths = contributions(study, tmp_path, logs())
    keys = [tmp_path / f"{name}.keys" for name in NAMES]
    with refused(InvalidInput, "other-kind", "keys"):
        merge(study, keys, tmp_path / "run", print)
    fewer = Study.of(table(study) | {"sites": {**study.sites, "west": "0" * 64}})
    with refused(InvalidInput, "other-study"):
        merge(fewer, paths, tmp_path / "run", print)
    kits(tmp_path, ("west",))
    with refused(InvalidInput, "not-in-study"):
        MailSite(study, tmp_path / "west")
    with refused(InvalidInput, "no-key"):
        MailSite(study, tmp_path / "nowhere")


def test_a_key_in_another_sites_name(tmp_path: Path) -> None:
    """Whoever passes keys on cannot put another one in."""
    study = study_of(tmp_path, settings=SECURE)
    sites = [MailSite(study, tmp_path / name) for name in NAMES]
    path = tmp_path / "north.keys"
    path.write_bytes(sites[1].keys())
    found = Sealed.read(path, study)
    forged = letter.Letter(**vars(found.letter) | {"site": "south"})
    path.write_bytes(forged.seal(sites[1].pair.private))
    with refused(DamagedFile, "altered", "south"):
        Sealed.read(path, study).check(study, "keys")


def test_masks_of_other_keys(tmp_path: Path) -> None:
    """A site that lost its secrets has new keys: its masks would not cancel with the others'."""
    study = study_of(tmp_path, settings=SECURE)
    paths = contributions(study, tmp_path, logs())
    other = tmp_path / "again"
    again = study_of(other, settings=SECURE, sites=kits(tmp_path))
    assert again.digest == study.digest
    for name in NAMES:  # the same signing keys, new masks
        (other / name / "fedlsvi" / ".secrets").mkdir(parents=True, exist_ok=True)
        key = tmp_path / name / "fedlsvi" / ".secrets" / "mail.json"
        (other / name / "fedlsvi" / ".secrets" / "mail.json").write_bytes(key.read_bytes())
    mixed = [contributions(again, other, logs())[0], *paths[1:]]
    with refused(InvalidInput, "other-membership"):
        merge(study, mixed, tmp_path / "run", print)


@pytest.mark.parametrize(
    "settings", [SECURE, {"aggregation": "exact", "privacy": {"epsilon": 9.0, "delta": 1e-6}}]
)
def test_the_same_records_give_the_same_file_and_others_none(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Two sums behind one mask, or with one noise, would give their difference away."""
    study, data = study_of(tmp_path, settings=settings), logs()
    paths = contributions(study, tmp_path, data)
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in contributions(study, tmp_path, data)] == before
    data["north"]["reward"][0] = 1.0 - data["north"]["reward"][0]
    with refused(MessageRefused, "answered-before", "north"):
        contributions(study, tmp_path, data)
    MailSite(study, tmp_path / "east").end()
    with pytest.raises(MessageRefused):
        contributions(study, tmp_path, logs())


def require(kit: Path, text: str) -> None:
    """What a site demands."""
    (kit / "local").mkdir(exist_ok=True)
    (kit / "local" / "fedlsvi.toml").write_text(f"[require]\n{text}\n")


@pytest.mark.parametrize("settings", [SECURE, SECURE | {"min_round": 5}, {"min_round": 5}])
def test_no_second_study_counts_one_patient_less(settings: dict[str, Any], tmp_path: Path) -> None:
    """East alone has thirty stays: the sum of a study of 30 less that of one of 29 would be its
    last patient."""
    contributions(study_of(tmp_path, settings=settings), tmp_path, logs())
    fewer = study_of(tmp_path, settings=settings, episodes=T - 1)
    with refused(MessageRefused, "other-episodes", "episodes = 30"):
        contributions(fewer, tmp_path, logs())
    home = tmp_path / "east" / "fedlsvi"
    assert not (home / fewer.called / "sent.jsonl").exists() or settings.get("aggregation")
    assert all(line["kind"] == "SiteKey" for line in _sent(home / fewer.called))
    contributions(study_of(tmp_path, settings=settings, seed=1), tmp_path, logs())
    for name in NAMES:
        require(tmp_path / name, "other_episodes = true")
    contributions(fewer, tmp_path, logs())


LACTATE = {"name": "lactate", "table": "labs", "missing": 1.0, "range": [0, 30], "edges": [2, 4]}
RECIPE: dict[str, Any] = {
    "hours": 4, "steps": 3, "tables": {"labs": {"stay": "stay", "time": "t"}},
    "stays": {"table": "labs", "stay": "stay", "outcome": "died", "rewards": {"yes": 0, "no": 1}},
    "states": [LACTATE],
    "actions": [{"name": "drug", "table": "labs", "edges": [0.01], "names": ["no", "yes"]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"edges": [2, 5]}, True),  # another question about the same stays
        ({"missing": None}, False),  # stays without a value are left out
        ({"range": [0, 20]}, False),
        ({"edges": None, "quantiles": 4}, None),  # histograms, from which the bins follow
    ],
)
def test_a_recipe_decides_which_stays_are_in_a_sum(
    changes: dict[str, Any], same: bool | None, tmp_path: Path
) -> None:
    def counted(**own: Any) -> dict[str, int]:
        variable = {key: value for key, value in (LACTATE | own).items() if value is not None}
        table = RECIPE | {"states": [variable]}
        sizes = sizes_of(Recipe.of(table))
        known = {key: value for key, value in study_of(tmp_path).table().items()
                 if key not in ("n_states", "horizon", "actions", "dim")}  # fmt: skip
        return Study.of(known | sizes | {"recipe": table}).counted

    plain, other = counted(), counted(**changes)
    assert (plain == other) == (same is True)
    assert (not plain.keys() & other.keys()) == (same is None)


def _sent(folder: Path) -> list[Any]:
    log = folder / "sent.jsonl"
    return list(lines(log)) if log.exists() else []


def test_after_a_lost_account_nobody_knows_who_is_in_which_sums(tmp_path: Path) -> None:
    contributions(study_of(tmp_path, settings=SECURE), tmp_path, logs())
    (tmp_path / "east" / "fedlsvi" / "account.jsonl").unlink()
    for study in (study_of(tmp_path, settings=SECURE, seed=seed) for seed in (1, 0)):
        with refused(DamagedFile, "bookings-lost"):
            contributions(study, tmp_path, logs())
    state(tmp_path / "east" / "fedlsvi", 0.0, 1e-6)
    contributions(study_of(tmp_path, settings=SECURE, seed=1), tmp_path, logs())


def test_two_studies_have_two_folders(tmp_path: Path) -> None:
    """Whoever writes studies makes two with the same name, and with the same start of the digest
    where that is short: one of 32 bits takes a minute."""
    study = study_of(tmp_path)
    name, digits = study.called.rsplit("-", 1)
    assert name == study.name
    assert study.digest.startswith(digits)
    assert 4 * len(digits) >= 96


def test_the_guard_names_the_site(tmp_path: Path) -> None:
    """Sums that no records have: a count that is no whole number."""
    study = study_of(tmp_path)
    paths = contributions(study, tmp_path, logs())
    site, found = MailSite(study, tmp_path / "south"), Sealed.read(paths[2], study)
    from fedlsvi.remote.codec import decode_reply, encode

    address, upload = decode_reply(found.letter.frames[0], study.layout)
    gram = upload.gram.copy()
    gram.flat[0] += 0.5
    wrong = encode(type(upload)(upload.h, gram, upload.b.copy(), upload.following), address)
    made = letter.Letter(**vars(found.letter) | {"frames": (wrong,)})
    paths[2].write_bytes(made.seal(site.pair.private))
    with refused(InvalidInput, "impossible-message", "south", "fraction in a count"):
        merge(study, paths, tmp_path / "run", print)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"n_states": 0}, "bad-states"),
        ({"n_states": 0, "bins": {}}, "bad-bins"),
        ({"n_states": 0, "bins": {"a": [2.0, 1.0]}}, "bad-bins"),
        ({"n_states": 0, "bins": {"a": ["x"]}}, "bad-bins"),
        ({"n_states": 0, "dim": 3}, "mail-needs-states"),
        ({"settings": {"exchange": "one-trip"}}, "bad-exchange"),
        ({"settings": {"own_features": 1}}, "bad-own_features"),
        ({"settings": {"gamma": 2.0}}, "unknown-setting"),
        ({"sites": {}}, "bad-sites"),
        ({"sites": {"east": "12"}}, "bad-key"),
        ({"sites": {"e/st": "0" * 64}}, "bad-site"),
        ({"sites": {"a": "0" * 64, "b": "0" * 64}}, "site-twice"),
        ({"settings": SECURE, "sites": {"a": "0" * 64}}, "too-few-sites"),
        ({"horizon": 0}, "bad-horizon"),
    ],
)
def test_a_study_that_cannot_be(changes: dict[str, Any], code: str, tmp_path: Path) -> None:
    base = {"name": "ward", "horizon": H, "episodes": T, "actions": A, "n_states": 4,
            "sites": {"a": "0" * 64, "b": "1" * 64, "c": "2" * 64}}  # fmt: skip
    with pytest.raises(InvalidInput) as caught:
        Study.of(base | changes)
    assert caught.value.code == code, str(caught.value)
    with refused(InvalidInput, "missing-key", "horizon"):
        Study.of({key: value for key, value in base.items() if key != "horizon"})
    assert issubclass(InvalidSetting, InvalidInput)

"""Files and studies from people who try: each is used, or refused in a sentence of this package."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import DamagedFile, FedLSVIError, InvalidInput
from fedlsvi.remote.mail import letter
from fedlsvi.remote.mail.attest import Statement, attest, recheck
from fedlsvi.remote.mail.letter import Sealed
from fedlsvi.remote.mail.merge import merge
from fedlsvi.remote.mail.site import MailSite
from fedlsvi.remote.mail.study import Study, grouped
from fedlsvi.storage import files as stored
from hostile_frames import mutated
from mailing import NAMES, contributions, kits, logs, study_of
from repeats import repeats

FILES = repeats(60, 1_000)
SECURE = {"aggregation": "secure"}
PRIVATE = SECURE | {"privacy": {"epsilon": 3.0, "delta": 1e-6}}
JUNK = (None, True, -1, 0, 1, 0.5, 2**63 - 1, 10**9, 2**70, 1e308, float("nan"), "", "../../x",
        "0" * 64, [], [[]], {}, {"a": 1})  # fmt: skip


def altered(value: Any, rng: random.Random) -> Any:
    """A JSON value with something else in one place."""
    if isinstance(value, dict | list) and value and rng.random() < 0.85:
        value = dict(value) if isinstance(value, dict) else list(value)
        at: Any = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if isinstance(value, dict) and rng.random() < 0.2:
            value[rng.choice(["frames", "kind", f"{at}x"])] = value.pop(at)
        else:
            value[at] = altered(value[at], rng)
        return value
    return rng.choice(JUNK)


def resealed(head: Any, frames: list[bytes], private: bytes) -> bytes:
    """A file that the site itself might have made, with the right signature."""
    text = json.dumps(head).encode()
    parts = [letter.MAGIC]
    for part in (text, *frames):
        parts += [letter._LENGTH.pack(len(part)), part]
    content = b"".join(parts)
    key = letter.crypto().ed25519.Ed25519PrivateKey.from_private_bytes(private)
    return content + bytes(key.sign(letter._LABEL + sha256(content).digest()))


def said(what: Callable[..., Any], *given: Any) -> str:
    """What comes of it: an error of this package, or "used"."""
    try:
        what(*given)
    except FedLSVIError as error:
        return error.code
    return "used"


@pytest.mark.parametrize("settings", [{}, SECURE, PRIVATE], ids=["exact", "secure", "private"])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_a_hostile_site_crashes_no_merge(settings: dict[str, Any], tmp_path: Path) -> None:
    """Its signature is right; what it has signed is not."""
    rng, codes = random.Random(str(settings)), Counter[str]()
    study = study_of(tmp_path, settings=settings)
    paths = contributions(study, tmp_path, logs())
    site = MailSite(study, tmp_path / "east")
    kept = [Sealed.read(path, study) for path in paths[:1]]
    if study.secure:
        kept.append(Sealed.read(tmp_path / "east.keys", study))
    others = [Sealed.read(tmp_path / f"{name}.keys", study) for name in NAMES[1:] if study.secure]

    def asked(path: Path) -> None:
        site.roster([Sealed.read(path, study), *others])

    def merged(path: Path, run: Path) -> None:
        merge(study, [path, *paths[1:]], run, print)

    for number in range(FILES):
        own = rng.choice(kept).letter
        head: Any = {key: value for key, value in vars(own).items() if key != "frames"}
        frames = list(own.frames)
        if rng.random() < 0.4:
            head = altered(head, rng)
        else:
            at = rng.randrange(len(frames))
            frames[at] = mutated(frames[at], rng, frames)
        path = tmp_path / "east.hostile"
        path.write_bytes(resealed(head, frames * rng.choice((1, 1, 1, 0, 2)), site.pair.private))
        if own.kind == letter.KEYS:
            codes[said(asked, path)] += 1
        else:
            codes[said(merged, path, tmp_path / f"run-{number}")] += 1
    assert len(codes) > 6


@pytest.mark.parametrize("settings", [{}, PRIVATE], ids=["exact", "private"])
def test_a_hostile_study_or_statement_is_used_or_refused(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    rng, codes = random.Random(str(settings)), Counter[str]()
    study = study_of(tmp_path, settings=settings)
    paths = contributions(study, tmp_path, logs())
    merge(study, paths, tmp_path / "run", print)
    attest(tmp_path / "run").write(tmp_path / "statement.json")
    statement = json.loads((tmp_path / "statement.json").read_text())
    path, privately = tmp_path / "altered.json", Counter[bool]()

    def booked(table: Any) -> None:
        read = Study.of(table)
        # as text: 0 is not 0.0 there
        assert (read.digest == study.digest) == (str(read.table()) == str(study.table()))
        booking, budget = MailSite(read, tmp_path / "east").booking, read.settings.get("privacy")
        if budget is None:
            assert booking is None
        else:  # what is booked is what the study says, whatever that is
            assert booking is not None
            assert (booking.run, booking.epsilon) == (f"{read.run:016x}", budget["epsilon"])
            assert booking.delta == budget["delta"]
            privately[booking.epsilon != 3.0] += 1

    def checked(table: Any) -> None:
        stored.write_json(path, {k: v for k, v in table.items() if k != "sha256"})
        recheck(Statement.read(path), paths)

    for _ in range(FILES):
        if isinstance(table := altered(study.table(), rng), dict):
            codes[said(booked, table)] += 1
        if isinstance(table := altered(statement, rng), dict):
            codes[said(checked, table)] += 1
    assert len(codes) > 10
    assert codes["used"] > 0
    other = settings | {"privacy": {"epsilon": 5.0, "delta": 1e-6}}
    for given in (settings, other | SECURE):
        booked(study.table() | {"settings": given})
    assert privately[True] > 0
    assert (privately[False] > 0) == bool(settings)
    with refused(InvalidInput, "too-large"):
        Study.of(study.table() | {"n_states": 2**32 - 1})


def test_a_file_that_no_study_has_room_for_is_not_read(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(letter.MAGIC)
        file.truncate(1 << 40)
    with refused(DamagedFile, "too-long"):
        Sealed.read(path, study)


def local(kit: Path, text: str) -> None:
    """A site's own settings."""
    (kit / "local").mkdir(exist_ok=True)
    (kit / "local" / "fedlsvi.toml").write_text(text)


def test_an_organiser_puts_no_key_of_its_own_in(tmp_path: Path) -> None:
    """Whoever writes study.toml could stand in for all other sites, and would have the masks. A
    site that lists the keys that people have compared takes no others."""
    keys = kits(tmp_path)
    forged = keys | {"south": grouped("ab" * 32)}
    study = study_of(tmp_path, settings=SECURE, sites=forged)
    MailSite(study, tmp_path / "east")  # which has compared nothing
    local(tmp_path / "east", f'[peers]\nnorth = "{keys["north"]}"\nsouth = "{keys["south"]}"\n')
    with refused(InvalidInput, "foreign-key", "south"):
        MailSite(study, tmp_path / "east")
    MailSite(study_of(tmp_path, settings=SECURE), tmp_path / "east")
    local(tmp_path / "east", f'[peers]\nnorth = "{keys["north"]}"\n')
    with refused(InvalidInput, "foreign-key", "south"):
        MailSite(study_of(tmp_path, settings=SECURE), tmp_path / "east")
    local(tmp_path / "east", "[peer]\n")
    with refused(FedLSVIError, "unknown-key"):
        MailSite(study, tmp_path / "east")


def test_what_a_site_requires_of_a_study(tmp_path: Path) -> None:
    """So many sites behind a sum; records are read in one round, whose end is no secret."""
    study = study_of(tmp_path, settings=SECURE)
    local(tmp_path / "east", '[require]\nsites = 3\nschedule = "public"\n')
    MailSite(study, tmp_path / "east")
    local(tmp_path / "east", "[require]\nsites = 4\n")
    with refused(InvalidInput, "protection-missing", "at least 4 sites"):
        MailSite(study, tmp_path / "east")


def test_earlier_sums_are_named_before_more_leave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The difference of two sums shows what records are in one of them only."""
    first, second = (study_of(tmp_path, settings=SECURE, seed=seed) for seed in (0, 1))
    contributions(first, tmp_path, logs())
    site = MailSite(first, tmp_path / "east")
    assert site.leaving(site.read(logs()["east"]))["studies_before"] == []
    site = MailSite(second, tmp_path / "east")
    assert site.leaving(site.read(logs()["east"]))["studies_before"] == [first.called]
    third = study_of(tmp_path, settings=PRIVATE)
    contributions(third, tmp_path, logs())
    capsys.readouterr()
    assert main(["privacy", str(tmp_path / "east")]) == 0  # a kit without settings of its own
    assert third.called in capsys.readouterr().out

"""Keys that sites make themselves: the organiser never has them, and cannot put others in their
place where sites have compared fingerprints."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from expecting import refused
from fedlsvi import cli
from fedlsvi.errors import FolderExists, InvalidInput, InvalidSetting, MessageRefused
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import site_keys
from fedlsvi.remote.flare.provision import init
from fedlsvi.remote.flare.site_certificate import SiteCertificate
from fedlsvi.remote.site_settings import SiteSettings

JOB = Federation("wards", episodes=40, horizon=20, dim=12, one_hot=True)
CONTENT = b"a key of secure sums"


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("organiser") / "project"
    return init(folder, JOB, {"north": {}, "south": {}, "west": {}})


@pytest.fixture
def project(provisioned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(provisioned, tmp_path / "project", symlinks=True))


def joined(project: Path, folder: Path, name: str) -> tuple[SiteCertificate, str]:
    """A site that made its key, and whose kit came back."""
    wanted, own = site_keys.request(name, folder)
    site_keys.sign(project, wanted)
    kit = project / "kits" / name
    assert not (kit / "startup" / "client.key").exists()
    assert site_keys.accept(folder, kit)[0] == own
    return SiteCertificate(kit / "startup", JOB.name), own


def test_no_key_of_a_site_is_with_the_organiser(project: Path, tmp_path: Path) -> None:
    """Whoever ran `init` could undo every mask: its folder had the keys of all sites."""
    wanted, own = site_keys.request("north", tmp_path / "mine")
    private = (tmp_path / "mine" / "client.key").read_bytes()
    name, seen = site_keys.sign(project, wanted)
    assert (name, seen) == ("north", own)
    key = serialization.load_pem_private_key(private, None)
    numbers = key.private_numbers()  # type: ignore[union-attr]
    for path in project.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert private[100:400] not in text
            assert f"{numbers.d:x}".encode() not in text
    kept = json.loads((project / "provisioned/wards/state/cert.json").read_text())
    assert kept["north"]["pri_key"] == ""
    assert kept["south"]["pri_key"] != ""
    assert not (project / "kits/north/startup/client.key").exists()
    assert site_keys.fingerprints(project)["north"] == (own, True)
    assert site_keys.fingerprints(project)["south"][1] is False


def test_a_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    site_keys.request("north", tmp_path / "mine")
    path = tmp_path / "mine" / "client.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(FolderExists):
        site_keys.request("north", tmp_path / "mine")
    assert path.read_bytes() == before


def test_sites_with_keys_of_their_own_know_each_other(project: Path, tmp_path: Path) -> None:
    north, _ = joined(project, tmp_path / "n", "north")
    south, _ = joined(project, tmp_path / "s", "south")
    assert south.verify(0, CONTENT, north.sign(CONTENT)) == "north"
    mixed = SiteCertificate(project / "kits/west/startup", JOB.name)  # made by the organiser
    assert mixed.verify(0, CONTENT, north.sign(CONTENT)) == "north"


def test_the_organiser_cannot_stand_in_for_a_site(project: Path, tmp_path: Path) -> None:
    """It signs another key in the name of north; south has compared fingerprints."""
    real, own = joined(project, tmp_path / "n", "north")
    genuine = real.sign(CONTENT)
    kit = project / "kits/south/startup"
    pinned = SiteCertificate(kit, JOB.name, {"north": own.upper().replace(" ", ":")})
    trusting = SiteCertificate(kit, JOB.name)
    impostor, _ = joined(project, tmp_path / "again", "north")
    assert trusting.verify(0, CONTENT, impostor.sign(CONTENT)) == "north"
    with refused(MessageRefused, "foreign-key"):
        pinned.verify(0, CONTENT, impostor.sign(CONTENT))
    assert pinned.verify(0, CONTENT, genuine) == "north"
    assert pinned.verify(1, CONTENT, pinned.sign(CONTENT)) == "south"
    west = SiteCertificate(project / "kits/west/startup", JOB.name)
    with refused(MessageRefused, "foreign-key"):
        pinned.verify(2, CONTENT, west.sign(CONTENT))


def test_a_kit_for_another_key_is_refused(project: Path, tmp_path: Path) -> None:
    first, _ = site_keys.request("north", tmp_path / "first")
    site_keys.request("north", tmp_path / "second")
    with refused(InvalidInput, "other-key"):
        site_keys.accept(tmp_path / "first", project / "kits/north")
    site_keys.sign(project, first)
    with refused(InvalidInput, "other-key"):
        site_keys.accept(tmp_path / "second", project / "kits/north")


@pytest.mark.parametrize("what", ["nothing", "text", "changed", "stranger", "path"])
def test_requests_that_are_not_signed(project: Path, tmp_path: Path, what: str) -> None:
    wanted, _ = site_keys.request("east" if what == "stranger" else "north", tmp_path / "mine")
    data = wanted.read_bytes()
    if what == "nothing":
        data = b""
    elif what == "text":
        data = b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
    elif what == "changed":
        lines = data.splitlines(keepends=True)
        lines[-3] = lines[-3][:10] + (b"A" if lines[-3][10:11] != b"A" else b"B") + lines[-3][11:]
        data = b"".join(lines)
    wanted.write_bytes(data)
    kits = {path: path.read_bytes() for path in (project / "kits").rglob("*.crt")}
    with pytest.raises(InvalidInput):
        site_keys.sign(tmp_path if what == "path" else project, wanted)
    assert all(path.read_bytes() == content for path, content in kits.items())


def test_names_that_are_paths_are_refused(tmp_path: Path) -> None:
    with refused(InvalidInput, "bad-site"):
        site_keys.request("../north", tmp_path)


def test_pins_are_read_from_the_settings_of_a_site(tmp_path: Path) -> None:
    path = tmp_path / "fedlsvi.toml"
    path.write_text('[env]\nname = "river-swim"\n[peers]\nsouth = "3f2a 91c0"\n')
    assert SiteSettings.read(path).peers == {"south": "3f2a 91c0"}
    path.write_text('peers = ["south"]\n[env]\nname = "river-swim"\n')
    with refused(InvalidSetting, "bad-peers"):
        SiteSettings.read(path)


def test_the_commands(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*arguments: Any) -> dict[str, Any]:
        assert cli.main(["federate", *map(str, arguments), "--format", "json"]) == 0
        table: dict[str, Any] = json.loads(capsys.readouterr().out)
        return table

    asked = call("join", tmp_path / "mine", "--name", "north")
    signed = call("sign", project, asked["request"])["sites"]
    done = call("join", tmp_path / "mine", "--kit", project / "kits/north")
    assert asked["fingerprint"] == signed["north"]["fingerprint"] == done["fingerprint"]
    assert signed["north"]["made_at_site"]
    assert not signed["west"]["made_at_site"]

"""The secrets that hide uploads: for their owner alone, and gone when the run has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedlsvi
import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import DamagedFile, TransportError
from fedlsvi.privacy import noise as private_noise
from fedlsvi.protocol.messages import Explore
from fedlsvi.protocol.protected import ProtectedInProcess
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.masking import KEYS
from fedlsvi.remote.release_log import releases
from fedlsvi.remote.site_privacy import SitePrivacy
from fedlsvi.storage.noise_key import NOISE
from site_endpoints import refusals
from transports_over_frames import dying, over_frames

PRIVACY = {"epsilon": 2.0, "delta": 1e-6}
KINDS = [("exact", "one-trip"), ("secure", "one-trip"), ("exact", "stepwise"),
         ("secure", "stepwise")]  # fmt: skip


def learn(aggregation: Any, exchange: Any, **options: Any) -> Any:
    problem = problems.simplex() if exchange == "one-trip" else problems.continuous()
    learner = FedLSVI(
        n_agents=5, exchange=exchange, aggregation=aggregation, rounds=5, privacy=PRIVACY
    )
    options = {"cohorts": 3, "progress": False} | options
    if "transport" in options:
        del options["cohorts"]
    return learner.learn(problem.envs, 60, 3, features=problem.features, **options)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(("aggregation", "exchange"), KINDS)
def test_the_folder_of_a_private_run_does_not_have_its_secret(
    aggregation: str, exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is played, a file for its owner alone has it, and no checkpoint; then nothing."""
    keys: list[str] = []
    arm = ProtectedInProcess._arm

    def armed(self: Any, key: bytes) -> None:
        keys.append(key.hex())
        arm(self, key)

    def look(record: Any) -> None:
        folders.append(everything(run / "checkpoints"))
        assert mode(run / NOISE) == 0o600
        assert json.loads((run / NOISE).read_text())["secret"] == keys[-1]

    monkeypatch.setattr(ProtectedInProcess, "_arm", armed)
    run, folders = tmp_path / "run", list[bytes]()
    learn(aggregation, exchange, folder=run, checkpoint_seconds=0, observers=[look])
    assert len(folders) == 5
    assert not (run / NOISE).exists()
    for content in (*folders, everything(run)):
        for key in keys:
            assert key.encode() not in content
            assert bytes.fromhex(key) not in content
    assert fedlsvi.load(run).epsilon_spent == 2.0


@pytest.mark.parametrize(("aggregation", "exchange"), KINDS)
def test_a_private_run_goes_on_with_the_noise_it_began_with(
    aggregation: str, exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or with none: without the file a second noise on the same sums is refused."""
    key = bytes(range(32))
    with monkeypatch.context() as patch:
        patch.setattr("fedlsvi.protocol.protected.new_noise_key", lambda: key)
        whole = learn(aggregation, exchange)

        def stop(record: Any) -> Any:
            return fedlsvi.STOP if record.k == 2 else None

        folder = tmp_path / "run"
        learn(aggregation, exchange, folder=folder, observers=[stop])
    secret = (folder / NOISE).read_bytes()
    about = {"env": problems.continuous().envs, "features": problems.continuous().features}
    if exchange == "one-trip":
        about = {"env": problems.simplex().envs, "features": problems.simplex().features}
    (folder / NOISE).unlink()
    with refused(DamagedFile, "noise-lost"):
        fedlsvi.resume(folder, progress=False, **about)
    (folder / NOISE).write_bytes(secret)
    run = fedlsvi.resume(folder, progress=False, **about)
    assert run.w.tobytes() == whole.w.tobytes()
    assert not (folder / NOISE).exists()


def test_a_run_killed_before_its_first_checkpoint_keeps_its_noise(tmp_path: Path) -> None:
    """What its observers saw of the first round had this noise."""
    folder, seen = tmp_path / "run", list[str]()

    def die(record: Any) -> None:
        seen.append((folder / NOISE).read_text())
        raise MemoryError

    with pytest.raises(MemoryError):
        learn("secure", "one-trip", folder=folder, checkpoint_seconds=1e6, observers=[die])
    assert not list((folder / "checkpoints").iterdir())

    def look(record: Any) -> None:
        assert (folder / NOISE).read_text() == seen[0]

    problem = problems.simplex()
    fedlsvi.resume(
        folder, env=problem.envs, features=problem.features, progress=False, observers=[look]
    )


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Endpoint], Path]]:
    """The endpoints of a run that a server has played to its end, with checkpoints."""
    endpoints: list[Endpoint] = []
    with monkeypatch.context() as patch:
        close = Endpoint.close
        patch.setattr(Endpoint, "close", lambda self: endpoints.append(self))
        learn(
            "secure", "one-trip", transport=over_frames(3, tmp_path / "journals"),
            folder=tmp_path / "run",
        )  # fmt: skip
    yield endpoints, tmp_path / "journals"
    for endpoint in endpoints:
        close(endpoint)


def secrets(journals: Path) -> dict[str, Path]:
    return {path.name: path for path in journals.glob("*.secrets/*.json")}


def test_a_site_deletes_its_secrets_when_the_run_has_ended(
    ended: tuple[list[Endpoint], Path],
) -> None:
    """And what it has sent stays written down: nobody is answered a second time."""
    endpoints, journals = ended
    assert {mode(path) for path in secrets(journals).values()} == {0o600}
    assert len(endpoints) == len(list(journals.glob(f"*/{KEYS}"))) == 3
    keys = [json.loads(path.read_text())["secret"] for path in journals.glob("*/noise-*")]
    assert all(len(key) == 64 for key in keys)
    assert [endpoint.end() for endpoint in endpoints] == [True] * 3
    assert not list(journals.glob(f"*/{KEYS}"))
    assert not any(key.encode() in everything(journals) for key in keys)
    assert all(len(list(releases(folder))) == 5 for folder in journals.glob("*.secrets"))
    assert [endpoint.end() for endpoint in endpoints] == [True] * 3  # said twice


def test_a_site_that_has_deleted_them_opens_and_sends_nothing_more(
    ended: tuple[list[Endpoint], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job of a run that has ended may be started again; the run may not be played again."""
    endpoints, journals = ended
    for endpoint in endpoints:
        endpoint.end()
        endpoint.close()
    endpoints.clear()
    problem = problems.simplex()
    again = fedlsvi.resume(
        tmp_path / "run", env=problem.envs, features=problem.features, progress=False,
        transport=over_frames(3, journals),
    )  # fmt: skip
    assert again.rounds == 5
    with refused(TransportError, "agent-failed"):
        learn("secure", "one-trip", transport=over_frames(3, journals))
    assert refusals(caplog) == {"run-ended"}


def test_a_site_keeps_its_secrets_until_all_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a server says: without them the run could not go on."""
    endpoints: list[Endpoint] = []
    with monkeypatch.context() as patch:
        close = Endpoint.close
        patch.setattr(Endpoint, "close", lambda self: endpoints.append(self))
        with pytest.raises(KeyboardInterrupt):
            learn(
                "secure", "one-trip", transport=dying(over_frames(3, tmp_path / "journals"), 9),
                folder=tmp_path / "run", checkpoint_seconds=0,
            )  # fmt: skip
    before = {name: path.read_bytes() for name, path in secrets(tmp_path / "journals").items()}
    assert [endpoint.end() for endpoint in endpoints] == [False] * 3
    assert before == {
        name: path.read_bytes() for name, path in secrets(tmp_path / "journals").items()
    }
    for endpoint in endpoints:
        close(endpoint)


@pytest.mark.parametrize(("aggregation", "exchange"), KINDS)
def test_noise_is_drawn_when_a_round_begins(
    aggregation: str, exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler takes as long as its numbers make it: not while a server waits for an upload."""
    asked: list[Any] = [None]
    drawn: list[type] = []
    answer, sampler = SitePrivacy.answer, private_noise.discrete_gaussian

    def answering(self: Any, cohort: Any, k: int, message: Any, until: Any) -> Any:
        asked[0] = type(message)
        return answer(self, cohort, k, message, until)

    def drawing(*given: Any) -> Any:
        drawn.append(asked[0])
        return sampler(*given)

    monkeypatch.setattr(SitePrivacy, "answer", answering)
    monkeypatch.setattr(private_noise, "discrete_gaussian", drawing)
    learn(aggregation, exchange, transport=over_frames(3, tmp_path))
    assert drawn
    assert set(drawn) == {Explore}

"""A merged study that anyone can check again.

Sums are of whole numbers, so every model follows from the files of the sites to the last bit.
`attest` writes one statement: the study, the hash and signature of each file, and the hash of the
model of each step. `recheck` takes the statement and the files, merges them again in memory, and
says yes, or where the two differ. Masks cancel and noise is in the files, so this holds for secure
and private studies alike, and whoever rechecks learns no more than whoever merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import __version__
from fedlsvi.checks import plural
from fedlsvi.errors import DamagedFile, InvalidInput, WrongVersion
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.remote.mail import STUDY, UPLOADS
from fedlsvi.remote.mail.letter import CONTRIBUTION, Letter, Sealed, of_all_sites
from fedlsvi.remote.mail.merge import check_membership
from fedlsvi.remote.mail.study import Study
from fedlsvi.remote.mail.transport import MailTransport
from fedlsvi.storage import files
from fedlsvi.storage.run_header import versions
from fedlsvi.storage.run_reader import load
from fedlsvi.storage.schema import Shape, suspect

_HASH = re.compile("[0-9a-f]{64}")
_SHAPE: Shape = {
    "format": int,
    "study": dict,
    "columns": [str],
    "digest": _HASH,
    "versions": {"fedlsvi": str, str: Any},
    "files": {str: {"sha256": _HASH, "signature": re.compile("[0-9a-f]{128}")}},
    "models": [{"w": _HASH, "gram": _HASH}],
}


@dataclass(frozen=True)
class Statement:
    """What a merge did.

    Attributes:
        study: The table of the study.
        columns: The columns of its bins in order.
        digest: Its digest.
        versions: What it ran on.
        files: Site → hash and signature of its file.
        models: Of each step, hashes of w and Λ.
    """

    study: dict[str, Any]
    columns: list[str]
    digest: str
    versions: dict[str, Any]
    files: dict[str, dict[str, str]]
    models: list[dict[str, str]]

    @classmethod
    def read(cls, path: str | Path) -> Statement:
        """From its file."""
        table = files.read_json(Path(path), _SHAPE)
        with suspect(Path(path)):
            table.pop("format")
            return cls(**table)

    def write(self, path: str | Path) -> None:
        """Into a file."""
        files.write_json(Path(path), {"format": files.FORMAT, **asdict(self)})


def attest(folder: str | Path) -> Statement:
    """The statement of a run folder that `merge` wrote."""
    where = Path(folder)
    if not files.exists(where / STUDY):
        raise InvalidInput(
            f"{where} is not a study that `fedlsvi merge` wrote: only there are the files kept "
            "from which every model follows",
            code="no-study",
        )
    study = Study.read(where / STUDY)
    sealed = [
        Sealed.read(files.inside(where, UPLOADS, f"{name}.{CONTRIBUTION}"), study)
        for name in study.names
    ]
    run = load(where)
    return Statement(
        study.table(), list(study.bins or ()), study.digest, versions(), _of_files(sealed),
        list(hashes_of(run.w, run.gram_packed)),
    )  # fmt: skip


def recheck(statement: Statement, paths: Sequence[str | Path]) -> Study:
    """Merge the files again, and compare with the statement.

    Raises:
        DamagedFile: A file is not the one that was merged, or a model does not follow from them;
            the message says which.
        InvalidInput: A file is missing, there twice, or of another study.
        WrongVersion: The statement was made by another version.
    """
    if statement.versions["fedlsvi"] != __version__:
        raise WrongVersion(
            f"the statement was made by fedlsvi {statement.versions['fedlsvi']}, and this is "
            f"{__version__}: use that version, because the last bits may differ",
            code="other-version",
        )
    table = dict(statement.study)
    if "bins" in table:
        table["bins"] = {name: table["bins"][name] for name in statement.columns}
    study = Study.of(table)
    if study.digest != statement.digest:
        raise DamagedFile(
            "the statement's study does not have the digest that it names: it was altered",
            code="not-attested",
        )
    if statement.files.keys() != set(study.names):
        raise DamagedFile(
            "the statement does not name one file of each site of its study: it was altered",
            code="not-attested",
        )
    sealed = [Sealed.read(path, study) for path in paths]
    for one in sealed:
        said = statement.files.get(one.letter.site)
        if one.letter.site in study.names and said != _of_file(one):
            raise DamagedFile(
                f"{one.path} is not the file of {one.letter.site} that was merged",
                code="not-merged",
            )
    letters = of_all_sites(study, sealed, CONTRIBUTION)
    w, gram = solved(study, letters)
    found = list(hashes_of(w, gram))
    for h, (here, there) in enumerate(zip(found, statement.models, strict=False), start=1):
        wrong = [what for what in ("w", "gram") if here[what] != there[what]]
        if wrong:
            raise DamagedFile(
                f"the model of step {h} does not follow from the files: "
                f"{'w' if 'w' in wrong else 'Λ'} differs",
                code="model-differs",
            )
    if len(found) != len(statement.models):
        raise DamagedFile(
            f"the statement has the models of {plural(len(statement.models), 'step')}, and the "
            f"study has {study.horizon:,}",
            code="model-differs",
        )
    return study


def solved(study: Study, letters: Sequence[Letter]) -> tuple[np.ndarray, np.ndarray]:
    """w (H, d) and Λ of all steps, from the letters of all sites."""
    check_membership(study, letters)
    p, transport = study.parameters, MailTransport(study, letters)
    values = study.values()
    player = FederatedPlayer(p, transport, algorithm="pevi", values=values, seed=study.seed)
    for _ in Session(player).rounds():
        pass
    return player.w, player.gram


def hashes_of(w: np.ndarray, gram: np.ndarray) -> Iterator[dict[str, str]]:
    """The hashes of w and Λ of each step."""
    for weights, matrix in zip(w, gram, strict=True):
        yield {"w": _hash(weights), "gram": _hash(matrix)}


def _of_files(sealed: Sequence[Sealed]) -> dict[str, dict[str, str]]:
    return {one.letter.site: _of_file(one) for one in sealed}


def _of_file(sealed: Sealed) -> dict[str, str]:
    return {"sha256": sealed.sha256, "signature": sealed.signature.hex()}


def _hash(array: np.ndarray) -> str:
    return sha256(np.ascontiguousarray(array, "<f8").tobytes()).hexdigest()

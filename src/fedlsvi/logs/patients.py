"""Whose episodes a log holds, where a column `patient` says so.

Where a private run protects patients, noise is made for at most m episodes of each. A log that
names them is checked: one in which a patient has more is refused, before anything is summed up. An
episode is of one patient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import UnnamedPatientsWarning, warn
from fedlsvi.logs.invalid_record import InvalidRecord
from fedlsvi.logs.rows import Rows

if TYPE_CHECKING:
    from fedlsvi.logs.world import LoggedWorld


class Patients:
    """Counts the episodes of each patient while a log is read."""

    def __init__(self) -> None:
        self._patients: dict[tuple[Any, int], Any] = {}
        self._named = True

    def feed(self, rows: Rows) -> None:
        """Take in some rows."""
        if rows.patient is None:
            self._named = False
            return
        whose = np.zeros(len(rows), np.int64) if rows.agent is None else rows.agent
        same = (rows.episode[1:] == rows.episode[:-1]) & (whose[1:] == whose[:-1])
        begins = np.concatenate(([True], ~(same & (rows.patient[1:] == rows.patient[:-1]))))
        for i in np.flatnonzero(begins).tolist():
            patient = rows.patient[i].item()
            known = self._patients.setdefault((whose[i].item(), int(rows.episode[i])), patient)
            if known != patient:
                raise InvalidRecord(
                    f"episode {rows.called(i)} is of two patients: give every patient episodes of "
                    "their own",
                    code="patient-changes",
                    row=int(rows.numbers[i]),
                )

    @property
    def most(self) -> int | None:
        """Episodes of the patient who has the most; None where the log does not say whose they
        are."""
        if not self._named or not self._patients:
            return None
        return max(Counter(self._patients.values()).values())


def refuse_frequent(worlds: Sequence[LoggedWorld], privacy: Mapping[str, Any] | None) -> None:
    """Refuse logs in which a patient has more episodes than the noise of a private run is for; warn
    of those that do not say whose they are.

    Args:
        worlds: The logs.
        privacy: As in `FedLSVI`, complete.

    Raises:
        InvalidRecord: A patient has more.
    """
    if privacy is None or privacy.get("unit", "episode") != "user":
        return
    m = privacy["episodes_per_user"]
    for world in worlds:
        most = world.log.per_patient
        if most is None:
            warn(
                f"{world.source.name} has no column patient, so nobody checks that a patient has "
                f"at most {plural(m, 'episode')}: that is your promise. Add the column, or name it "
                "with columns={'patient': …}",
                UnnamedPatientsWarning,
            )
        elif most > m:
            raise InvalidRecord(
                f"a patient has {plural(most, 'episode')} in {world.source.name}, but "
                f"episodes_per_user is {m}: leave the others out, or agree on a larger "
                "episodes_per_user",
                code="user-too-often",
            )

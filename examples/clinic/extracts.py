"""Synthetic patients, and what three hospitals have of them: a wide table, and extracts in the
manner of CLIF and of OMOP.

A patient has a severity, which a vasopressor of the right dose lowers and one of the wrong dose
raises. Clinicians see lactate and blood pressure, and choose the right dose half of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

HOURS, STEPS = 4, 5
DOSES = (0.0, 0.1, 0.4)
"""Of norepinephrine, in µg/kg/min."""

DIED, HOME = 4216643, 4139502
LACTATE, PRESSURE, NOREPINEPHRINE = 3047181, 3027598, 1321341
"""Concepts of OMOP."""

Choose = Callable[[np.random.Generator, float, float, int], int]
"""What is given: (rng, lactate, blood pressure, window from 1) → class of dose."""


def clinicians(rng: np.random.Generator, lactate: float, pressure: float, window: int) -> int:
    """Half of the time the dose that the numbers ask for, else any."""
    wanted = int(np.clip((lactate - 1.2) // 1.4, 0, 2))
    return wanted if rng.random() < 0.5 else int(rng.integers(3))


def patients(n: int, seed: int, choose: Choose = clinicians) -> pd.DataFrame:
    """The hours of n stays; numbers are missing where nobody measured."""
    rng, rows = np.random.default_rng(seed), []
    for stay in range(n):
        severity, begun = (
            rng.uniform(1.0, 4.5),
            pd.Timestamp("2024-03-01") + pd.Timedelta(hours=int(rng.integers(5000))),
        )
        windows, dose = int(rng.integers(3, STEPS + 2)), 0
        hours, seen, pressures = [], 1.5, [75.0]
        for window in range(windows):
            if window:  # the first one is only observed
                dose = choose(rng, seen, float(np.mean(pressures)), window)
                wanted = int(np.clip((severity - 1.2) // 1.4, 0, 2))
                severity += 0.3 * abs(dose - wanted) - 0.35 * (dose == wanted)
                severity += rng.normal(0.0, 0.15)
            lactates, pressures = [], []
            for hour in range(HOURS):
                lactate = max(0.3, severity + rng.normal(0.0, 0.2))
                measured = hour in (0, 2)
                lactates += [lactate] if measured else []
                pressures.append(95.0 - 9.0 * severity + rng.normal(0.0, 3.0))
                hours.append((begun + pd.Timedelta(hours=HOURS * window + hour),
                              round(lactate, 1) if measured else None, round(pressures[-1], 1),
                              DOSES[dose] if hour == 0 else None))  # fmt: skip
            seen = max(lactates)
        died = rng.random() < 1.0 / (1.0 + np.exp(2.0 * (3.0 - severity)))
        about = (1000 * seed + stay, 5000 * seed + stay, "yes" if died else "no")
        rows += [(*about, *hour) for hour in hours]
    names = ["stay_id", "subject_id", "died", "charttime", "lactate", "map", "norepinephrine"]
    return pd.DataFrame(rows, columns=names)


def survival(n: int, seed: int, choose: Choose) -> float:
    """The share of n new patients that survive under a way to choose: only a simulator can say."""
    return float((patients(n, seed, choose).groupby("stay_id")["died"].first() == "no").mean())


def _long(wide: pd.DataFrame, column: str, code: object, names: tuple[str, ...]) -> pd.DataFrame:
    """The values of one column as rows: stay, time, name, value."""
    there = wide[wide[column].notna()]
    parts = [there["stay_id"], there["charttime"], [code] * len(there), there[column]]
    return pd.DataFrame(dict(zip(names, parts, strict=True)))


def write_wide(wide: pd.DataFrame, folder: Path) -> None:
    """One row for each hour, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    wide.to_csv(folder / "ward.csv", index=False)


def write_clif(wide: pd.DataFrame, folder: Path) -> None:
    """Long tables with names of categories, as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    stays = wide.groupby("stay_id").first().reset_index()
    pd.DataFrame({
        "patient_id": stays["subject_id"].astype(str),
        "hospitalization_id": stays["stay_id"],
        "admission_dttm": stays["charttime"],
        "discharge_category": np.where(stays["died"] == "yes", "Expired", "Home"),
    }).to_parquet(folder / "hospitalization.parquet")  # fmt: skip
    for table, column, code, names in (
        ("labs", "lactate", "lactate", ("lab_result_dttm", "lab_category", "lab_value_numeric")),
        ("vitals", "map", "map", ("recorded_dttm", "vital_category", "vital_value")),
        ("medication_admin_continuous", "norepinephrine", "norepinephrine",
         ("admin_dttm", "med_category", "med_dose")),
    ):  # fmt: skip
        rows = _long(wide, column, code, ("hospitalization_id", *names))
        rows.to_parquet(folder / f"{table}.parquet")


def write_omop(wide: pd.DataFrame, folder: Path) -> None:
    """Long tables with numbers of concepts, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    stays = wide.groupby("stay_id").first().reset_index()
    pd.DataFrame({
        "visit_occurrence_id": stays["stay_id"], "person_id": stays["subject_id"],
        "visit_start_datetime": stays["charttime"],
        "discharged_to_concept_id": np.where(stays["died"] == "yes", DIED, HOME),
    }).to_csv(folder / "visit_occurrence.csv", index=False)  # fmt: skip
    visit = "visit_occurrence_id"
    measured = (visit, "measurement_datetime", "measurement_concept_id", "value_as_number")
    given = (visit, "drug_exposure_start_datetime", "drug_concept_id", "quantity")
    codes = (("lactate", LACTATE), ("map", PRESSURE))
    pd.concat([_long(wide, column, code, measured) for column, code in codes]).to_csv(
        folder / "measurement.csv", index=False
    )
    rows = _long(wide, "norepinephrine", NOREPINEPHRINE, given)
    rows.to_csv(folder / "drug_exposure.csv", index=False)

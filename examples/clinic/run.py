"""Three hospitals, three kinds of tables, one policy.

`python -m examples.clinic.run [FOLDER]`: each hospital has its own patients, as a wide table, in
the manner of CLIF, and in the manner of OMOP. They agree on bins from secure sums of histograms,
make episodes by one recipe, learn together, and estimate what the policy is worth from records of
other patients. Last of all the simulator says what it is worth.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from examples.clinic.extracts import (
    clinicians,
    patients,
    survival,
    write_clif,
    write_omop,
    write_wide,
)

from fedlsvi import PEVI
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.envs import logged_worlds
from fedlsvi.logs.clinical import episodes
from fedlsvi.logs.histograms import with_edges
from fedlsvi.logs.recipe import Recipe
from fedlsvi.storage import settings_file

HERE = Path(__file__).parent
SITES: dict[str, tuple[Any, str | None]] = {
    "north": (write_wide, None),
    "south": (write_clif, "clif.toml"),
    "east": (write_omop, "omop.toml"),
}
"""Hospital → how it writes its tables, and its layout."""


def layouts() -> list[dict[str, Any] | None]:
    """Where things are at each hospital."""
    names = [layout for _, layout in SITES.values()]
    return [None if name is None else settings_file.read(HERE / name) for name in names]


def extracts(folder: Path, stays: int, first: int) -> list[Path]:
    """The tables of all hospitals."""
    found = []
    for m, (name, (write, _)) in enumerate(SITES.items()):
        found.append(folder / name)
        write(patients(stays, first + m), found[-1])
    return found


def logs(recipe: Recipe, tables: list[Path]) -> list[Any]:
    """The episodes of all hospitals."""
    made = [episodes(recipe, where, own) for where, own in zip(tables, layouts(), strict=True)]
    sizes: dict[str, Any] = {"horizon": 1, "n_actions": 1}
    if not recipe.open:
        sizes = {"horizon": recipe.steps, "action_names": recipe.action_names}
    return logged_worlds([one.columns for one in made], n_states=recipe.n_states, **sizes)


def main(folder: Path, stays: int = 800) -> dict[str, float]:
    """Bins, episodes, a policy, and its value."""
    recipe = Recipe.of(settings_file.read(HERE / "recipe.toml"))
    tables, held_out = extracts(folder, stays, 1), extracts(folder / "others", stays, 11)
    settings = settings_file.read(HERE / "settings.toml")
    secure = {name: settings[name] for name in ("aggregation", "exchange")}
    bins = PEVI(len(SITES), **secure).learn(logs(recipe, tables), progress=False)
    agreed = with_edges(recipe, bins.gram_packed, bins.w)
    run = PEVI(len(SITES), **settings).learn(logs(agreed, tables), progress=False)
    others, phi, most = logs(agreed, held_out), run.plan.features, settings["value_range"]
    found = estimate_value(run.policy, others, phi, value_range=most, repeats=200)

    def learned(rng: np.random.Generator, lactate: float, pressure: float, window: int) -> int:
        state = agreed.bins.states(np.array([[lactate, pressure]]))[0]
        return run.policy.action(int(state), step=window)

    assert found.low is not None
    assert found.high is not None
    return {
        **{f"edges of {own.name}, {i}": edge for own in agreed.variables
           for i, edge in enumerate(own.edges or ())},
        "survival in the records": found.behaviour,
        "estimated for the learned policy": found.value,
        "  at least": found.low,
        "  at most": found.high,
        "survival under the clinicians, simulated": survival(4000, 21, clinicians),
        "survival under the learned policy, simulated": survival(4000, 21, learned),
    }  # fmt: skip


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        where = Path(sys.argv[1] if sys.argv[1:] else temporary)
        for what, value in main(where).items():
            print(f"{what:<48}{value:>10.4g}")

"""Sites whose records have words for actions: all number them alike, or none takes part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from expecting import refused
from fedlsvi.envs import RandomMDP, record_episodes, write_records
from fedlsvi.errors import InvalidInput
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import transitions_of
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.site_settings import SiteSettings

NAMES = ["none", "low", "high"]
FEDERATION = Federation(
    "records", episodes=20, horizon=3, dim=12, one_hot=True, algorithm="pevi", action_names=NAMES
)


@pytest.fixture
def sites(tmp_path: Path) -> list[SiteSettings]:
    """One has all words, one lacks the first in their order."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    found = []
    for name, law in (("north", None), ("south", np.full((3, 4), 2))):
        log = record_episodes(env, 20, law)
        log["action"] = np.array(NAMES)[log["action"]]
        write_records(log, tmp_path / f"{name}.csv")
        (tmp_path / f"{name}.toml").write_text(f'data = "{name}.csv"\n')
        found.append(SiteSettings.read(tmp_path / f"{name}.toml"))
    return found


def test_the_job_says_which_number_a_name_has(sites: list[SiteSettings]) -> None:
    for m, own in enumerate(sites):
        worlds, _ = own.world(FEDERATION, 2, m)
        assert worlds[m].action_names == NAMES
        assert worlds[m].n_actions == 3
    actions = np.concatenate([seen.action for _, seen in transitions_of(worlds[1:])])
    assert set(actions.tolist()) == {2}  # "high", as at the other site


def test_without_names_in_the_job_nobody_numbers_them(sites: list[SiteSettings]) -> None:
    for job in (replace(FEDERATION, action_names=None),
                replace(FEDERATION, action_names=None, n_actions=3)):  # fmt: skip
        for own in sites:
            with refused(InvalidInput, "actions-unnamed", "federation.toml"):
                own.world(job, 2, 0)
    with refused(InvalidRecord, "action-outside", "high"):
        sites[0].world(replace(FEDERATION, action_names=["none", "low", "more"]), 2, 0)


def test_names_that_are_none_are_refused() -> None:
    FEDERATION.check(2)
    assert Federation.of(FEDERATION.table()) == FEDERATION
    for names in ("none", [], [1, 2, 3], ["none", "none", "low"]):
        with refused(InvalidRecord, "bad-action_names"):
            replace(FEDERATION, action_names=names).check(2)  # type: ignore[arg-type]
    with refused(InvalidRecord, "bad-action_names", "4"):
        replace(FEDERATION, n_actions=4).check(2)

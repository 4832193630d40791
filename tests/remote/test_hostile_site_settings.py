"""`local/fedlsvi.toml` with anything in it: a site takes part, or its settings are refused in a
sentence that says what to change."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from fedlsvi.envs import RandomMDP, record_episodes, write_records
from fedlsvi.errors import FedLSVIError
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.site_settings import SiteSettings

FEDERATION = Federation(
    "t", episodes=5, horizon=3, dim=12, one_hot=True, logged=10, n_actions=3
)  # fmt: skip
VALUES = (
    "5", "-1", "0", "1e400", "nan", '"x"', '""', "[]", "[1]", '["a"]', "{}", "{a = 1}", "true",
    "[[1]]", "[{}]", "1979-05-27", "07:32:00", "9223372036854775807", "-0.0", '"a\\u0000b"',
    '"../../../etc/passwd"',
)  # fmt: skip
PLACES = {
    # where a value stands, and its keys
    'data = "log.csv"\n': ("agents", "durable", "features", "require", "env"),
    "": ("data",),
    '[data]\nfile = "log.csv"\n': ("columns", "n_states", "n_actions", "allowed", "at_least"),
    "[data]\n": ("file",),
    "[env]\n": ("name", "gym", "entry"),
    '[env]\nname = "random-mdp"\n': ("horizon", "n_states"),
    'data = "log.csv"\n[require]\n': ("min_round", "aggregation", "epsilon"),
    'data = "log.csv"\n[features]\n': ("name",),
}


@pytest.mark.filterwarnings("ignore")
def test_nothing_foreign_is_raised(tmp_path: Path) -> None:
    world = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    write_records(record_episodes(world, 10), tmp_path / "log.csv")
    path, ends = tmp_path / "fedlsvi.toml", Counter[str]()
    for before, keys in PLACES.items():
        for key, value in itertools.product(keys, VALUES):
            path.write_text(f"{before}{key} = {value}\n")
            try:
                own = SiteSettings.read(path)
                own.world(FEDERATION, 2, 0)
                own.feature_map()
                own.require.missing(FEDERATION.settings)
            except FedLSVIError as error:
                ends[error.code] += 1
            else:
                ends["takes part"] += 1
    assert ends["bad-columns"] > 5
    assert ends["bad-n_actions"] > 5
    assert ends["takes part"] > 0

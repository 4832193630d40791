"""What a site settles for itself: its environment by name, Gymnasium id or entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedlsvi import envs, settings_file
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.federation.job import Federation, SiteSettings, open_station
from fedlsvi.messages import Stop, Upload
from fedlsvi.server import Server
from fedlsvi.transports.wire import Address, decode_reply, encode
from fedlsvi.transports.wired import run_name

SIZES = {"n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
FEDERATION = Federation("trial", episodes=40, horizon=5, dim=8, settings={"gamma": 9.0})


def settled(folder: Path, **env: Any) -> SiteSettings:
    """The settings of a site whose file names this environment."""
    path = folder / "fedlsvi.toml"
    path.write_text(settings_file.dump({"agents": 2, "durable": False, "env": env}))
    return SiteSettings.read(path)


def first_upload(folder: Path, settings: SiteSettings, federation: Federation) -> bytes:
    """What the station of a site answers to a first round of seven episodes."""
    station, audit = open_station(federation, settings, 1, 3, folder)
    p = federation.parameters(3)
    run = run_name(p, federation.seed)
    start = Server(station.layout, p.lam, p.gamma, p.beta, p.episodes).parameters()
    for number, message in enumerate((start, Stop(7)), start=1):
        reply = station.handle(encode(message, Address(run, 5, number, 1, 1, 2)))
    assert isinstance(decode_reply(reply, station.layout)[1], Upload)
    station.close()
    audit.close()
    return reply


def test_three_ways_to_name_the_same_world(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"name": "random-linear"},
        {"gym": "fedlsvi/RandomLinearMDP-v0"},
        {"entry": "fedlsvi.envs:RandomLinearMDP"},
    ]
    uploads = set()
    for way, named in enumerate(ways):
        settings = settled(tmp_path, **named, **SIZES)
        assert isinstance(settings.env, envs.RandomLinearMDP)
        assert settings.agents == 2
        uploads.add(first_upload(tmp_path / str(way), settings, FEDERATION))
    assert len(uploads) == 1


def test_a_gymnasium_world_by_id_and_by_a_function_that_makes_it(tmp_path: Path) -> None:
    """`horizon` is an argument where the function takes it, else the size of what it makes."""
    federation = Federation("lake", 40, horizon=9, dim=64, one_hot=True, settings={"gamma": 9.0})
    by_id = settled(tmp_path, gym="FrozenLake-v1", horizon=9, is_slippery=False)
    by_entry = settled(
        tmp_path, entry="gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv", horizon=9,
        is_slippery=False,
    )  # fmt: skip
    uploads = [
        first_upload(tmp_path / str(i), settings, federation)
        for i, settings in enumerate((by_id, by_entry))
    ]
    assert uploads[0] == uploads[1]


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"gym": "FrozenLake-v9"}, "unknown environment 'FrozenLake-v9': did you mean"),
        ({"gym": "FrozenLake-v1", "is_slipery": True}, "has wrong keys: .*'is_slipery'"),
        ({"gym": "CartPole-v1", "horizon": 0}, "horizon"),
        ({"entry": "no_such_ward:make"}, r"cannot be found \(No module named 'no_such_ward'\)"),
        ({"entry": "json:nothing"}, "cannot be found .*install its package in the Python that"),
        ({"entry": "json"}, "entry must be module:function, got 'json'"),
        ({"entry": "math:pi"}, "entry 'math:pi' is a float: name a function"),
        ({"entry": "json:loads", "s": "3"}, "gave a int: give a function that makes"),
        ({"entry": "json:loads"}, "has wrong keys: missing a required argument: 's'"),
        ({"entry": "fedlsvi.envs:RandomLinearMDP", "beds": 3}, "wrong keys: .*'beds'"),
        ({"name": "river-swim", "gym": "FrozenLake-v1"}, "one of name, gym and entry"),
        ({"n_states": 3}, "one of name, gym and entry, got none"),
    ],
)
def test_a_wrong_environment_is_refused_in_a_sentence(
    env: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        settled(tmp_path, **env)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"horizon": 4}, "has horizon 4, the federation agreed on 5: change .env."),
        ({"dim": 6}, "has dim 6, the federation agreed on 8"),
    ],
)
@pytest.mark.parametrize(
    "way", [{"gym": "fedlsvi/RandomLinearMDP-v0"}, {"entry": "fedlsvi.envs:RandomLinearMDP"}]
)
def test_sizes_that_are_not_the_federations(
    way: dict[str, Any], change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    settings = settled(tmp_path, **way, **(SIZES | change))
    with pytest.raises(InvalidEnvironment, match=sentence):
        open_station(FEDERATION, settings, 0, 2, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_one_hot_worlds_do_not_join_a_federation_of_dense_features(tmp_path: Path) -> None:
    federation = Federation("lake", 40, horizon=9, dim=64, settings={"gamma": 9.0})
    settings = settled(tmp_path, gym="FrozenLake-v1", horizon=9)
    with pytest.raises(InvalidEnvironment, match="has packing diagonal, the federation agreed on"):
        open_station(federation, settings, 0, 2, tmp_path / "site")

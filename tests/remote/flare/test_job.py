"""What a site settles for itself: its environment by name, Gymnasium id or entry point."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kits import JOB, engine, first_start, server_kit

from expecting import refused
from fedlsvi import envs
from fedlsvi.core.statistics import pack
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.policy import Policy
from fedlsvi.protocol.messages import Keep, Model, Start, Stop, Upload
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.audit import lines
from fedlsvi.remote.codec import Address, decode_reply, encode, run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.federation import Federation, package
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare.signing import Signer
from fedlsvi.remote.flare.transport import SignedSite
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.ray.transport import Actor
from fedlsvi.remote.site import keep_policy, open_books, open_endpoint
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.remote.site_status import LOG, refusals
from fedlsvi.storage import settings_file
from guarded import judge

SIZES = {"n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
FEDERATION = Federation("trial", episodes=40, horizon=5, dim=8, settings={"gamma": 9.0})


def settled(folder: Path, **env: Any) -> SiteSettings:
    """The settings of a site whose file names this environment."""
    path = folder / "fedlsvi.toml"
    path.write_text(settings_file.dump({"agents": 2, "durable": False, "env": env}))
    return SiteSettings.read(path)


def first_upload(folder: Path, settings: SiteSettings, federation: Federation) -> bytes:
    """What the endpoint of a site answers to a first round of seven episodes."""
    books = open_books(settings, folder)
    endpoint = open_endpoint(federation, settings, 1, 3, books)
    p = federation.parameters(3)
    run = run_id(p, federation.seed)
    start = first_start(p)
    for number, message in enumerate((start, Stop(7)), start=1):
        reply = endpoint.handle(encode(message, Address(run, 5, number, 1, 1, 2)))
    assert isinstance(decode_reply(reply, endpoint.layout)[1], Upload)
    endpoint.close()
    for book in books:
        book.close()
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
    ("env", "code", "value"),
    [
        ({"gym": "FrozenLake-v9"}, "unknown-environment", "'FrozenLake-v9'"),
        ({"gym": "FrozenLake-v1", "is_slipery": True}, "factory-raised", "'is_slipery'"),
        ({"gym": "CartPole-v1", "horizon": 0}, "bad-horizon", "0"),
        ({"entry": "no_such_ward:make"}, "entry-not-found", "'no_such_ward'"),
        ({"entry": "json:nothing"}, "entry-not-found", "nothing"),
        ({"entry": "json"}, "bad-entry", "'json'"),
        ({"entry": "math:pi"}, "entry-not-a-function", "'math:pi'"),
        ({"entry": "json:loads", "s": "3"}, "bad-env", "3"),
        ({"entry": "json:loads"}, "bad-entry-keys", "'s'"),
        ({"entry": "fedlsvi.envs:RandomLinearMDP", "beds": 3}, "bad-entry-keys", "'beds'"),
        ({"name": "river-swim", "gym": "FrozenLake-v1"}, "bad-env", "name, gym"),
        ({"n_states": 3}, "bad-env", "none"),
    ],
)
def test_a_wrong_environment_is_refused_in_a_sentence(
    env: dict[str, Any], code: str, value: str, tmp_path: Path
) -> None:
    with refused(InvalidInput, code, value):
        settled(tmp_path, **env)


@pytest.mark.parametrize(
    ("change", "code", "values"),
    [({"horizon": 4}, "other-horizon", ["4", "5"]), ({"dim": 6}, "other-dim", ["6", "8"])],
)
@pytest.mark.parametrize(
    "way", [{"gym": "fedlsvi/RandomLinearMDP-v0"}, {"entry": "fedlsvi.envs:RandomLinearMDP"}]
)
def test_sizes_that_are_not_the_federations(
    way: dict[str, Any], change: dict[str, Any], code: str, values: list[str], tmp_path: Path
) -> None:
    settings = settled(tmp_path, **way, **(SIZES | change))
    with refused(InvalidEnvironment, code, *values):
        open_endpoint(FEDERATION, settings, 0, 2, open_books(settings, tmp_path / "site"))


def test_one_hot_worlds_do_not_join_a_federation_of_dense_features(tmp_path: Path) -> None:
    federation = Federation("lake", 40, horizon=9, dim=64, settings={"gamma": 9.0})
    settings = settled(tmp_path, gym="FrozenLake-v1", horizon=9)
    with refused(InvalidEnvironment, "other-packing", "one_hot = true", "federation.toml"):
        open_endpoint(federation, settings, 0, 2, open_books(settings, tmp_path / "site"))


def test_dense_worlds_do_not_join_a_federation_of_one_hot_features(tmp_path: Path) -> None:
    federation = replace(FEDERATION, one_hot=True)
    settings = settled(tmp_path, name="random-linear", **SIZES)
    with refused(InvalidEnvironment, "other-packing", "one_hot = false"):
        open_endpoint(federation, settings, 0, 2, open_books(settings, tmp_path / "site"))


@pytest.mark.parametrize("flag", ["nonnegative", "simplex"])
def test_what_was_agreed_about_features_is_checked_by_both(flag: str, tmp_path: Path) -> None:
    """A site that cannot keep to it does not join, and an upload that breaks it is refused."""
    agreed = replace(FEDERATION, **{flag: True})
    agreed.check(2)
    own = settled(tmp_path, name="random-linear", **SIZES)
    plan = agreed.plan(own.env, 2)
    signed = -np.abs(plan.features.table)
    with refused(InvalidEnvironment, f"not-{flag}"):
        agreed.plan(own.env, 2, signed)
    FEDERATION.plan(own.env, 2, signed)
    p = agreed.parameters(2)
    guard = Guard(layout(p), agreed.bounds(p))
    model = np.tile(pack(100.0 * np.eye(p.dim), "packed"), (p.horizon, 1))
    guard.sends(Start(np.zeros((p.horizon, p.dim)), model, 9.0, 1.0, 40))
    guard.sends(Stop(3))
    phi = np.where(np.arange(p.dim) < 2, 0.5, 0.0)
    gram = 3.0 * pack(np.outer(phi, phi), "packed")
    honest = Upload(p.horizon, gram[None], 1.5 * phi[None])
    judge(guard, 0, honest)
    with refused(Refusal, "impossible-message", "smallest entry of b"):
        judge(guard, 0, Upload(p.horizon, gram[None], -1.5 * phi[None]))
    if flag == "simplex":
        with refused(Refusal, "impossible-message", "1ᵀΛ1"):
            judge(guard, 0, Upload(p.horizon, 0.5 * gram[None], 0.5 * phi[None]))


CHAIN = """
import gymnasium

class Chain(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(20)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return int(action), 0.0, action == 3, False, {}
"""


def test_a_state_that_was_added_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes that have ended are in a state of their own: dim is 84 and not 20 × 4."""
    (tmp_path / "ward_of_twenty.py").write_text(CHAIN)
    monkeypatch.syspath_prepend(tmp_path)
    federation = Federation("chain", 40, horizon=9, dim=80, one_hot=True)
    settings = settled(tmp_path, entry="ward_of_twenty:Chain", horizon=9)
    with refused(InvalidEnvironment, "other-dim", "84", "21 states", "4 actions"):
        open_endpoint(federation, settings, 0, 2, open_books(settings, tmp_path / "site"))


def test_a_reward_is_worth_the_same_at_every_site(tmp_path: Path) -> None:
    """A table's own range is not the federation's; given at both, it is."""
    own = Federation("taxi", 40, horizon=9, dim=48 * 4, one_hot=True, settings={"gamma": 9.0})
    cliff = {"gym": "CliffWalking-v1", "horizon": 9}
    wider = {"reward_range": [-100, 1]}
    books = open_books(settled(tmp_path, **cliff), tmp_path / "site")
    for federation, more, code, values in (
        (own, {}, "other-reward_range", ["(-100, 0)", "[0, 1]"]),
        (own, wider, "other-reward_range", ["(-100, 1)", "[0, 1]"]),
        (replace(own, **wider), {}, "other-reward_range", ["(-100, 0)", "[-100, 1]"]),
        (replace(own, reward_range=[1, 0]), {}, "bad-reward_range", ["[1, 0]"]),
        (replace(own, reward_range=0), {}, "bad-reward_range", ["0"]),
    ):
        with refused(InvalidEnvironment, code, *values):
            open_endpoint(federation, settled(tmp_path, **cliff, **more), 0, 2, books)
    open_endpoint(replace(own, **wider), settled(tmp_path, **cliff, **wider), 0, 2, books).close()
    with refused(InvalidEnvironment, "bad-reward_range", "'a'"):
        replace(own, reward_range=["a", 1]).check(2)
    for book in books:
        book.close()


def test_what_a_site_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    """The journal has raw states in it."""
    settings = settled(tmp_path, entry="canary:make", horizon=5, dim=8)
    journal, audit = open_books(settings, tmp_path / "site")
    endpoint = open_endpoint(FEDERATION, settings, 0, 2, (journal, audit))
    p = FEDERATION.parameters(2)
    start = first_start(p)
    requests = (start, Stop(7), *(Model(h, start.w[0], start.gram[0]) for h in range(5, 0, -1)))
    for number, message in enumerate((*requests, Keep(7)), start=1):
        address = Address(run_id(p, 0), 5, number, 1 + isinstance(message, Keep), 0, 2)
        endpoint.handle(encode(message, address))
    kept = [*(tmp_path / "site" / "journal").iterdir(), tmp_path / "site" / "sent.jsonl"]
    assert len([path for path in kept if path.suffix == ".safetensors"]) == 2
    for path in (*kept, journal.folder):
        assert not path.stat().st_mode & 0o077, path
    for part in (endpoint, journal, audit):
        part.close()


@pytest.mark.parametrize("others", [False, True])
def test_a_temporary_journal_goes_with_its_station(others: bool, tmp_path: Path) -> None:
    """As in an actor of Ray on another node, where nobody else would remove it."""
    plan = FEDERATION.plan(envs.make("random-linear", **SIZES), 2)
    folder = tmp_path / "fedlsvi-1"
    actors = [Actor(make) for make in endpoint_factories(plan, 2, folder, False, 1, scratch=True)]
    assert len(list(folder.iterdir())) == 2
    for actor in actors[others:]:
        actor.close()
    assert folder.exists() == others
    actors[0].close()
    assert not folder.exists()


def test_hello_is_written_down_before_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, name="random-linear", **SIZES)
    monkeypatch.setattr(flare, "collab", engine(tmp_path))
    signer = Signer(server_kit(tmp_path / "server"), "trial", JOB)
    site = SignedSite(flare.Site(FEDERATION.table()), signer, "south")
    assert site.hello() == {"agents": 2, "package": package()}
    (line,) = lines(tmp_path / "fedlsvi" / "trial" / "sent.jsonl")
    assert (line["kind"], line["scalars"]) == ("Hello", 1)


def test_a_job_without_what_a_site_requires_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The organiser hears why, and so does the engineer at the site; no book is opened there."""
    own = {"agents": 2, "env": {"name": "random-linear", **SIZES}, "require": {"min_round": 20}}
    (tmp_path / "fedlsvi.toml").write_text(settings_file.dump(own))
    monkeypatch.setattr(flare, "collab", engine(tmp_path))
    signer = Signer(server_kit(tmp_path / "server"), "trial", JOB)
    site = SignedSite(flare.Site(FEDERATION.table()), signer, "south")
    for call in (site.hello, lambda: site.join(0, 2)):
        with refused(flare.SiteTrouble, "protection-missing", "min_round = 20"):
            call()
    assert {path.name for path in (tmp_path / "fedlsvi" / "trial").iterdir()} == {LOG}
    (said,) = refusals(tmp_path / "fedlsvi" / "trial" / LOG)
    assert "min_round = 20" in said["sentence"]
    willing = replace(FEDERATION, settings=FEDERATION.settings | {"min_round": 20})
    site = SignedSite(flare.Site(willing.table()), signer, "south")
    assert site.hello()["agents"] == 2


def test_a_site_keeps_the_policy_to_deploy(tmp_path: Path) -> None:
    """Once, when the pass after the last round is over: it is the server's, and not the policy that
    explored or one of which some steps are missing."""
    settings = settled(tmp_path, name="random-linear", **SIZES)
    books = open_books(settings, tmp_path / "site")
    endpoint = open_endpoint(FEDERATION, settings, 0, 2, books)
    kept: list[bool] = []

    class Site:
        agents, close = endpoint.agents, endpoint.close

        def handle(self, frame: bytes) -> bytes:
            reply = endpoint.handle(frame)
            if True not in kept:
                kept.append(keep_policy(settings, endpoint, tmp_path))
            return reply

    p = FEDERATION.parameters(2)
    assert p.exploit
    transport = ThreadTransport(p, [Site], run_id(p, FEDERATION.seed))
    player = FederatedPlayer(p, transport, FEDERATION.plan(settings.env, 2))
    assert list(Session(player).rounds())
    transport.close()
    deployed = Policy.load(tmp_path / "policy").table
    assert np.array_equal(deployed, player.deployed.policy)
    assert not np.array_equal(deployed, player.values.policy)
    for book in books:
        book.close()


@pytest.mark.parametrize("part", [flare.Site, flare.Coordinator])
def test_flare_does_not_look_for_tensors(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would import PyTorch in every process of a job."""
    from nvflare.fuel.utils.import_utils import optional_import

    for name in [name for name in sys.modules if name.startswith("nvflare.app_opt.pt")]:
        monkeypatch.delitem(sys.modules, name)
    part({})
    assert "nvflare.app_opt.pt" in sys.modules
    assert not optional_import("nvflare.app_opt.pt.decomposers", name="TensorDecomposer")[1]
    assert not [name for name in sys.modules if name.startswith("nvflare.app_opt.pt.")]

"""A site of a federation: its journal, its agents, and the policy that stays in its kit.

What all parties agree on is in `federation`, what a site settles for itself in `site_settings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedlsvi.envs.base import Environment
from fedlsvi.envs.per_agent import own_features, per_agent
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import InvalidFeatures, InvalidInput
from fedlsvi.logs.world import LoggedWorld
from fedlsvi.policy import Policy
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.remote.account import Together
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.storage import files

SETTINGS, HOME, POLICY = "fedlsvi.toml", "fedlsvi", "policy"
"""In a kit: a site's settings in local/, what belongs to its federations, and what it learned."""

RECORDS = "the records"
"""What an account calls the records of a site."""

SECRETS = ".secrets"
"""Beside the folders of the federations: no name of a federation begins with a dot."""


def open_books(settings: SiteSettings, folder: Path) -> tuple[Journal, Audit]:
    """The journal of a site, and its log of what leaves; no other process has them then."""
    files.make_private(own := files.inside(folder, "journal"))
    secrets = files.inside(folder.parent, SECRETS, folder.name)
    # the worker of a job that was aborted may take a moment to end
    journal = Journal(own, settings.durable, lock_seconds=60.0, secrets=secrets)
    try:
        return journal, Audit(
            files.inside(folder, "sent.jsonl"), settings.durable, lock_seconds=60.0
        )
    except BaseException:
        journal.close()
        raise


def sums_of(
    federation: Federation, settings: SiteSettings, n_agents: int, sites: Sequence[str] = (),
    worlds: Sequence[Any] = (),
) -> list[Together]:  # fmt: skip
    """Which of a site's data a job sums up, and how much of them.

    Args:
        federation: The job.
        settings: The site's, with its records.
        n_agents: Agents of all sites.
        sites: Names of all sites of a secure sum.
        worlds: What the site's agents read.
    """
    p, reads = federation.parameters(n_agents), settings.data is not None
    offline, size = federation.algorithm == "pevi", {"horizon": p.horizon, "min_round": p.min_round}
    found = []
    if reads:
        learned = federation.episodes if offline else federation.logged
        logs = [own.log.episodes for own in worlds if isinstance(own, LoggedWorld)]
        there = {"recorded episodes": sum(min(n, learned) for n in logs)} if logs else {}
        found.append((RECORDS, size | there | {"episodes": learned}))
    if federation.evaluate is not None:
        counted = int(federation.evaluate.get("episodes", p.episodes))
        same = reads and settings.data == settings.held_out
        found.append((RECORDS, size | {"episodes" if same else "held-out episodes": counted}))
    if settings.env is not None and not offline:
        ends = {"episodes": federation.episodes, "rounds": p.rounds or 0}
        found.append((f"the episodes of seed {federation.seed}", size | ends))
    names = tuple(sorted(sites))
    return [Together(federation.name, data, names, counted) for data, counted in found]


def keep_policy(settings: SiteSettings, endpoint: Endpoint, folder: Path) -> bool:
    """Write what was learned into a site's own folder, once its last model has arrived.

    Args:
        settings: The site's; its environment says what the policy sees and does.
        endpoint: The site's agents.
        folder: The site's folder of this federation.

    Returns:
        Whether all episodes are played, so that the policy is there.
    """
    policy = learned_policy(settings, endpoint)
    if policy is None:
        return False
    files.make_private(own := files.inside(folder, POLICY))
    policy.save(own)
    return True


def learned_policy(settings: SiteSettings, endpoint: Endpoint) -> Policy | None:
    """What a site has learned, once its last model has arrived; None before."""
    cohort, p = endpoint.cohort, endpoint.parameters
    if cohort.experience.t < p.episodes:
        return None
    if p.exploit and (cohort.deployed is None or cohort.second is not None):
        return None  # the pass after the last round is yet to come, or under way
    # a site may have only a log
    env = cohort.experience.worlds[0] if settings.env is None else per_agent(settings.env, 1)[0]
    values: Any = cohort.values if cohort.deployed is None else cohort.deployed
    return Policy(lambda: (values, Spaces.of(env)), p.horizon, env.spec())


def kit_of(path: Path) -> Path | None:
    """The kit of a site that a path is or lies in; None for any other path."""
    here = path.absolute()
    for folder in (here, *here.parents[: len((HOME, "name", POLICY))]):
        if files.exists(folder / "local" / SETTINGS):
            return folder
    return None


def policy_in(kit: Path, path: Path) -> Path:
    """The policy that a path in a kit means: a kit that has learned one thing needs no more."""
    learned = sorted((kit / HOME).glob(f"*/{POLICY}/policy.json"))
    inside = [own.parent for own in learned if own.is_relative_to(path.absolute())]
    if len(inside) == 1:
        return inside[0]
    named = ", ".join(str(folder) for folder in inside)
    raise InvalidInput(
        f"{path} holds {len(inside)} policies: "
        + (f"give one of {named}" if inside else "one is written there when its run has ended"),
        code="no-policy" if not inside else "several-policies",
    )


def policy_of_site(kit: Path, path: Path) -> tuple[Policy, Environment]:
    """A policy that a site has learned, and the environment that its settings name."""
    settings = SiteSettings.read(kit / "local" / SETTINGS)
    if settings.env is None:
        raise InvalidInput(
            f"the site of {kit} has a log but no environment to play in: give --env, or --data to "
            "estimate from a log",
            code="needs-world",
        )
    return _loaded(path, settings), per_agent(settings.env, 1)[0]


def policy_for_logs(kit: Path, path: Path) -> tuple[Policy, dict[str, Any]]:
    """A policy that a site has learned, and how its logs are read: columns and what is allowed."""
    settings = SiteSettings.read(kit / "local" / SETTINGS)
    form = {key: value for key, value in (settings.data or {}).items()
            if key in ("columns", "allowed")}  # fmt: skip
    return _loaded(path, settings), form


def _loaded(path: Path, settings: SiteSettings) -> Policy:
    try:
        return Policy.load(path)
    except InvalidFeatures:  # they are the environment's own, which no file can hold
        if settings.env is None:
            raise
        return Policy.load(path, features=own_features([per_agent(settings.env, 1)[0]]))


def open_endpoint(
    federation: Federation, settings: SiteSettings, first: int, n_agents: int,
    books: tuple[Journal, Audit], identity: SiteIdentity | None = None,
) -> Endpoint:  # fmt: skip
    """The endpoint of a site, as its journal has it; secure sums need its identity."""
    lo, hi = first, first + settings.agents
    world, logs = settings.world(federation, n_agents, first)
    plan = federation.plan(world, n_agents, settings.feature_map(), logs)
    if not 0 <= lo < hi <= n_agents:
        raise InvalidInput(
            f"there are no agents {lo} to {hi - 1}: the run has {n_agents}", code="no-such-agents"
        )
    run = run_id(plan.parameters, federation.seed)
    make = partial(cohort_of, plan, lo, hi)
    return Endpoint(make, plan.parameters, run, *books, identity, plan.agreed)

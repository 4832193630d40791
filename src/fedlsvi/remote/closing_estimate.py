"""A job that ends with an estimate: what the learned policy is worth, from records at the sites.

`[evaluate]` in federation.toml asks for it, and each site names the records for it itself
(`held_out` in local/fedlsvi.toml), which should be others than those that it learns from. After the
last round the server asks for the passes of one evaluation (`fitted_q_evaluation`); each site knows
them beforehand, answers no other, and answers each step under one model only. Episodes of the
bootstrap are drawn with a secret of the site: a server that knew how often each was drawn could
solve for single episodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from secrets import randbits
from typing import Any

from fedlsvi.algorithms.fitted_q_evaluation import (
    Estimate,
    agreed,
    estimate_at_sites,
    with_behaviour,
)
from fedlsvi.algorithms.shared.evaluation_site import Evaluation, EvaluationSite
from fedlsvi.checks import integer, is_number, number, refuse_unknown
from fedlsvi.config import Parameters
from fedlsvi.core.privacy_accountant import share_of
from fedlsvi.envs.base import in_own_units, units
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.groups import PRACTICAL_LAM
from fedlsvi.policy import Policy
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.evaluation import AnsweredModels, FramePasses, PassHandler, pass_id
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.storage import evaluations, files
from fedlsvi.storage.schema import Shape

KEYS = ("repeats", "episodes", "share")

SHARE = 0.2
"""What the estimate of a private job takes of its budget, where share= is left out."""

DRAWS, LEFT, PASSES = "evaluation.json", "evaluated.jsonl", "evaluation"
"""At a site: the secret of its draws, what left for the evaluation, journals of private passes."""
_SECRET: Shape = {"secret": re.compile("[0-9a-f]{32}")}


def check(table: Any, p: Parameters) -> None:
    """Refuse an evaluation that cannot be, in a sentence.

    Args:
        table: `[evaluate]` of a federation.
        p: The numbers in force.
    """
    if not isinstance(table, dict):
        raise InvalidSetting(
            f"evaluate must be a table, got {table!r}: write [evaluate]", code="not-a-table"
        )
    refuse_unknown("key of [evaluate]", table, KEYS)
    integer("repeats", table.get("repeats", 100), 0, "the bootstrap's repeats")
    integer("episodes", table.get("episodes", p.episodes), 1, "that count of a site's records")
    if "share" in table:
        hint = "what the estimate of a private job takes of its budget"
        number("share", table["share"], 0.0, hint, most=0.9, strict=True)


def divided(privacy: Mapping[str, Any], table: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What learning and the estimate may each spend of a job's budget: μ² = μ_l² + μ_e²."""
    share = table.get("share", SHARE) if isinstance(table, dict) else SHARE
    share = min(max(float(share), 0.0), 0.9) if is_number(share) else SHARE  # checked elsewhere
    budget = float(privacy["epsilon"]), float(privacy["delta"])
    learning, estimating = (share_of(*budget, part) for part in (1.0 - share, share))
    return {**privacy, "epsilon": learning}, {**privacy, "epsilon": estimating}


def evaluation_of(federation: Any, n_agents: int) -> Evaluation:
    """What all parties agree on, without a policy and features."""
    p, table = federation.parameters(n_agents), federation.evaluate
    budget = federation.budget(n_agents)
    return with_behaviour(
        agreed(
            policy=None, features=None, n_agents=n_agents,
            episodes=table.get("episodes", p.episodes), horizon=p.horizon, dim=p.own_dim,
            one_hot=p.packing == "diagonal", nonnegative=federation.bounds(p).nonnegative,
            lam=PRACTICAL_LAM, value_range=p.value_range, stationary=p.stationary, seed=0,
            confidence=p.confidence, repeats=table.get("repeats", 100),
            aggregation=p.aggregation, min_round=federation.settings.get("min_round", 1),
            privacy=None if budget is None else divided(budget, table)[1],
        )
    )  # fmt: skip


def estimate_id(federation: Any, n_agents: int) -> str:
    """64 digits of a hash of the estimate that a job ends with, for the account of a site's data:
    passes with other numbers have other noise. "" without one."""
    if federation.evaluate is None:
        return ""
    evaluation = evaluation_of(federation, n_agents)
    numbers = [pass_id(evaluation, one) for one in evaluation.passes]
    return sha256(json.dumps(numbers).encode()).hexdigest()


def refuse_unnamed(federation: Any, settings: SiteSettings) -> None:
    """Refuse a job that ends with an estimate where the site names no records for it."""
    if federation.evaluate is not None and settings.held_out is None:
        raise InvalidInput(
            "this job ends with an estimate from held-out logs, but this site names none: give "
            "held_out = FILE with records that the site does not learn from, or ask the organiser "
            "to leave [evaluate] out",
            code="no-held_out",
        )


def open_passes(
    federation: Any, settings: SiteSettings, policy: Policy, first: int, n_agents: int,
    folder: Path, identity: SiteIdentity | None = None, asked: bytes = b"",
) -> PassHandler:  # fmt: skip
    """What answers for a site in the evaluation of its policy.

    Args:
        federation: The job.
        settings: The site's, with its records.
        policy: What was learned here.
        first, n_agents: The number of the site's first agent, and agents in all.
        folder: The site's folder of this federation.
        identity: Of the site, where sums are secure.
        asked: Hash of what the site was asked while it learned the policy.
    """
    from fedlsvi.remote.site import SECRETS

    assert settings.held_out is not None
    logs = settings.logs(federation, n_agents, first, settings.held_out)
    own = logs[first : first + settings.agents]
    world, learned_from = settings.world(federation, n_agents, first)
    plan = federation.plan(world, n_agents, settings.feature_map(), learned_from)
    evaluation = replace(
        evaluation_of(federation, n_agents), policy=policy, features=plan.features,
        seed=_secret(folder), agreed=_agreed(federation, asked),
    )  # fmt: skip
    outbox = Audit(files.inside(folder, LEFT), settings.durable, lock_seconds=60.0)
    answered = AnsweredModels(folder, settings.durable)
    private = files.inside(folder, PASSES), files.inside(folder.parent, SECRETS, folder.name)
    for part in private:
        files.make_private(part)
    site = EvaluationSite(evaluation, own, first)
    return PassHandler(site, answered, outbox, identity, private)


def _agreed(federation: Any, asked: bytes) -> bytes:
    """(32,) hash of what sites must have alike so that their sums of an estimate can be added."""
    table = json.dumps(federation.evaluate, sort_keys=True).encode()
    return sha256(b"estimate" + federation.agreed + asked + table).digest()


def _secret(folder: Path) -> int:
    """The seed of a site's draws, the same after a restart."""
    path = files.inside(folder, DRAWS)
    if not files.exists(path):
        files.write_json(path, {"secret": f"{randbits(128):032x}"})
    return int(files.read_json(path, _SECRET)["secret"], 16)


def already(folder: Path, sites: Sequence[str], played: int) -> bool:
    """Whether the run folder has this estimate."""
    kept = evaluations.read(folder)["estimated"]
    return any(one["data"] == list(sites) and one["played"] == played for one in kept)


def estimate(
    federation: Any, evaluation: Evaluation, passes: FramePasses, sites: Sequence[str], folder: Path
) -> Estimate:
    """Ask the sites, and write what was found into the server's run folder.

    Args:
        federation: The job.
        evaluation: As `evaluation_of` has it.
        passes: The sites.
        sites: Their names.
        folder: The server's run folder.
    """
    span = units(federation.reward_range)
    found = estimate_at_sites(
        evaluation, passes, lambda value: in_own_units(value, federation.horizon, span)
    )
    about = {
        "data": list(sites), "stationary": evaluation.stationary,
        "repeats": len(evaluation.draws),
    }  # fmt: skip
    evaluations.add(folder, "estimated", about | found.row())
    return found

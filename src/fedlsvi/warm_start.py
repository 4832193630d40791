"""An earlier run as the prior of another one."""

from __future__ import annotations

from os import PathLike
from typing import Any

from fedlsvi.checks import number
from fedlsvi.envs.base import units
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.warm_start import Prior
from fedlsvi.run import SENDS_SUMS, Run


def prior_of(source: Any, weight: float = 1.0) -> Prior:
    """The sums of an earlier run, of Fed-LSVI or from logs.

    Args:
        source: A `Run`, the folder of one, or a prior.
        weight: ρ, what an episode of that run counts.
    """
    hint = "1 counts an episode of that run as one of this, 0.1 ten of them as one"
    number("warm_weight", weight, 0.0, hint, strict=True, error=InvalidInput)
    if isinstance(source, Prior):
        return source
    run = source
    if isinstance(source, str | PathLike):
        from fedlsvi.storage import load

        run = load(source)
    if not isinstance(run, Run):
        raise InvalidInput(
            f"warm_start is of type {type(run).__name__}: give a run, or the folder of a run",
            code="bad-warm_start",
        )
    if run.algorithm not in (*SENDS_SUMS, "pevi", "centralised"):
        raise InvalidInput(
            f"'{run.algorithm}' does not learn one shared regression model, so it cannot be a "
            "warm start: start from a run of fed-lsvi or pevi",
            code="bad-warm_start",
        )
    p = run.parameters
    seen = p.n_agents * (p.episodes + p.logged) * (p.horizon // p.matrices)
    w = run.w if run.policy_w is None else run.policy_w
    gram = run.gram_packed[: p.matrices]
    title = f"the run in {run.folder}" if run.folder else "the earlier run"
    about = (_fingerprint(run), run.reward_range)
    return Prior(w.copy(), gram.copy(), p.lam, float(weight), seen, title, *about)


def check_prior(prior: Prior, plan: Plan) -> None:
    """Refuse the model of a run that had other features, or rewards in other units."""
    from fedlsvi.storage.run_header import features_fingerprint

    if prior.features not in (None, features_fingerprint(plan)):
        raise InvalidInput(
            f"{prior.title} has different features, so its model cannot be used here: give the "
            "same features=",
            code="other-features",
        )
    own = units(plan.world.reward_range)
    if prior.reward_range is not None and units(prior.reward_range) != own:
        raise InvalidInput(
            f"{prior.title} has rewards in {units(prior.reward_range)}, but this run has {own}: "
            "give the same reward_range=",
            code="other-reward_range",
        )


def _fingerprint(run: Run) -> str | None:
    from fedlsvi.storage.run_header import features_fingerprint, read_header

    if run.plan is not None:
        return features_fingerprint(run.plan)
    return None if run.folder is None else read_header(run.folder).features

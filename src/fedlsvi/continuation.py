"""Continuing a run: `Run.learn_more` without a folder, which runs allow it; and `Run.exploit`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from fedlsvi.checks import integer, plural
from fedlsvi.config import what_differs
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.errors import ContinuationWarning, InvalidInput, InvalidSetting, warn
from fedlsvi.learner import FedLSVI, played
from fedlsvi.policy import Policy
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.records import Observer, check_observers
from fedlsvi.run import Run


def continue_run(
    run: Run,
    more: int,
    env: Any = None,
    features: Any = None,
    *,
    progress: bool | None = None,
    observers: Iterable[Observer] = (),
    threads: int | None = None,
) -> Run:
    """Continue a run for so many episodes; `Run.learn_more` explains it."""
    watching = check_observers(observers)
    learner, plan, memory = run.learner, run.plan, run.memory
    hint = "how many more to play"
    episodes = run.played + integer("episodes", more, 1, hint, error=InvalidInput)
    if plan is not None and env is None:
        shared = all(one is plan.envs[0] for one in plan.envs)
        env = plan.envs[0] if shared else list(plan.envs)
        features = plan.features if features is None else features
    if run.folder is not None:
        from fedlsvi.storage import resume

        return resume(
            run.folder, episodes=episodes, env=env, features=features, observers=watching,
            progress=progress, threads=threads,
            data=list(plan.logs) if plan is not None and plan.logs else None,
        )  # fmt: skip
    if learner is None or plan is None:
        raise InvalidInput(
            "this run was loaded without its agents' state: continue the run that `learn` "
            "returned, or one that has a folder",
            code="cannot-continue",
        )
    refuse_longer(run, episodes, memory is not None)
    assert memory is not None
    session = learner.prepare(
        env, episodes, plan.seed, features=plan.features,
        cohorts=memory.plain["cohorts"] or None,
        threads=plan.threads if threads is None else threads, block=plan.block,
        keep_models=bool(run.models), **_known_before(plan),
    )  # fmt: skip
    past = [record for record in run.records if record.last <= memory.t]
    if memory.history:
        session.player.extend(0, memory.history)
    session.restore(
        memory.arrays, memory.plain, None if run.regret is None else run.regret[: memory.t], past
    )
    session.models, session.policies = run.models[: len(past)], run.policies[: len(past)]
    differs = what_differs(run.parameters, session.plan.parameters, memory.t)
    if differs is not None:
        warn(differs, ContinuationWarning)
    if progress is not False:
        from fedlsvi.observers.progress import bar

        watching += bar(session.plan.parameters, progress, memory.t)
    longer = played(session, learner, watching)
    return replace(longer, extended=(*run.extended, *([differs] if differs else [])))


def refuse_longer(run: Run, episodes: int, remembered: bool) -> None:
    """Refuse to continue a run of an algorithm that cannot be, or whose memory is gone."""
    T = run.parameters.episodes
    integer("episodes", episodes, run.played + 1, f"{run.played:,} were played", error=InvalidInput)
    again = f"play a new run of {plural(episodes, 'episode')}"
    budgets = {name: vars(run.settings).get(name) for name in ("rounds", "scalars")}
    asked = [name for name, budget in budgets.items() if isinstance(budget, int)]
    if episodes != T and asked:
        raise InvalidInput(
            f"{asked[0]} was a budget for {plural(T, 'episode')}, and a longer run might exceed "
            f"it: {again}",
            code="cannot-continue",
        )
    if run.parameters.privacy is not None:
        raise InvalidInput(
            f"this run was private for {plural(T, 'episode')} and has spent its budget: {again}. "
            "For a user with episodes in both runs, the two budgets add up",
            code="budget-spent",
        )
    if not remembered:
        raise InvalidInput(
            f"this run of '{run.algorithm}' cannot be continued: its rounds or constants depend "
            "on the number of episodes, its agents are in other processes, or their state is too "
            f"large to keep: {again}",
            code="cannot-continue",
        )


def policy_at(run: Run, pessimism: float) -> Policy:
    """The policy of one more backward pass over what the agents of a run remember; `Run.policy_at`
    explains it."""
    learner, plan, memory = run.learner, run.plan, run.memory
    if not isinstance(learner, FedLSVI) or plan is None or memory is None:
        raise InvalidInput(
            f"this run of '{run.algorithm}' has no agents' state here: learn with "
            f'policy="exploit", pessimism={pessimism:g}, and the run ends with this policy',
            code="no-statistics",
        )
    p = plan.parameters
    if p.privacy is not None and p.exchange == "stepwise":
        raise InvalidSetting(
            "one more pass collects all responses again, and the budget of this private run is "
            'spent: learn with policy="exploit", which divides it among one release more',
            code="bad-policy",
        )
    asked = asdict(learner.settings) | {"policy": "exploit", "pessimism": pessimism}
    shared = all(env is plan.envs[0] for env in plan.envs)
    session = FedLSVI(**asked).prepare(
        plan.envs[0] if shared else list(plan.envs), plan.parameters.episodes, plan.seed,
        features=plan.features, cohorts=memory.plain["cohorts"] or None, threads=plan.threads,
        **_known_before(plan),
    )  # fmt: skip
    player = session.player
    if memory.history:
        player.extend(0, memory.history)
    session.restore(memory.arrays, memory.plain, None, [])
    try:
        with one_blas_thread():
            if memory.t < run.played:  # the last round is played again, with the same draws
                list(session.rounds())
            else:
                player.start()
                player.finish()
    finally:
        session.close()
    found = Policy.of(session)
    assert found is not None
    return found


def _known_before(plan: Plan) -> dict[str, Any]:
    """Logs and prior, as `FedLSVI.prepare` takes them; nothing where there is neither."""
    known: dict[str, Any] = {"logs": plan.logs} if plan.logs else {}
    return known if plan.prior is None else known | {"prior": plan.prior}

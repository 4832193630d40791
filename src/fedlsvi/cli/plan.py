"""`fedlsvi plan`: what a run will take, before it is played."""

from __future__ import annotations

import click

from fedlsvi.cli.command import Problem, command, format_option, option, problem_options
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput


@command()
@problem_options("Any setting, as in `fedlsvi run`. Repeatable.")
@option("--seed", type=int, metavar="N", show_default="0", section="Problem",
        help="Seed of the run.")  # fmt: skip
@option("--cohorts", type=click.IntRange(min=1), metavar="N", section="Execution",
        help="Number of groups of agents.")  # fmt: skip
@option("--threads", type=click.IntRange(min=1), metavar="N", section="Execution",
        help="Number of threads.")  # fmt: skip
@format_option
def plan(
    problem: Problem, seed: int | None, cohorts: int | None, threads: int | None, form: str
) -> int:
    """Say what a run of Fed-LSVI will take: rounds, time, memory, scalars.

    \b
    Plays its first rounds for a few seconds. Examples:
      fedlsvi plan --env river-swim --agents 8 --episodes 20000
      fedlsvi plan settings.toml --set rounds=50 --format json
    """
    from fedlsvi.learner import FedLSVI
    from fedlsvi.storage.settings_file import Job, for_learn

    job = Job.parse(problem.table(seed=seed), problem.base)
    learner = job.learner()
    if not isinstance(learner, FedLSVI):
        raise InvalidInput(
            f"the settings are of algorithm '{job.algorithm}', but only fed-lsvi can be planned",
            code="cannot-plan",
        )
    env, known = job.known_before(job.environments())
    found = learner.plan(
        env, job.episodes, job.seed, features=job.feature_map(), cohorts=cohorts, threads=threads,
        **for_learn(known),
    )  # fmt: skip
    print(as_json(found.to_dict()) if form == "json" else found)
    return 0

"""The records of a site, read and checked as a study asks, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidInput
from fedlsvi.logs.bins import BinnedSource, Bins
from fedlsvi.logs.clinical import episodes
from fedlsvi.logs.sources import Columns, as_source
from fedlsvi.logs.world import LoggedWorld, logged_worlds
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Upload
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.mail.requests import requests, start_of
from fedlsvi.remote.mail.study import Study


@dataclass(frozen=True)
class Records:
    """The records of a site, as the study reads them.

    Attributes:
        study: The study.
        world: The log.
        plan: Of the run; only this site's agent is ever made of it.
        first: The number of that agent.
        left_out: What a recipe left out of the tables → how many.
    """

    study: Study
    world: LoggedWorld
    plan: Plan
    first: int
    left_out: dict[str, int]

    @classmethod
    def read(
        cls, study: Study, first: int, data: Any, columns: Columns | None = None,
        layout: Mapping[str, Any] | None = None,
    ) -> Records:  # fmt: skip
        """Check them.

        Args:
            study: The study.
            first: The number of the site's agent.
            data: A log of one agent, as in `PEVI.learn`; tables of a clinic where the study has a
                recipe.
            columns: What the columns are called in it.
            layout: Where the recipe's columns are in these tables, if they look different.
        """
        names = dict(columns or {})
        left_out: dict[str, int] = {}
        if study.agreed is not None:
            made = episodes(study.agreed, data, layout)
            # all know the recipe, so whoever merges knows what is allowed
            data = {name: own for name, own in made.columns.items() if name != "allowed"}
            left_out = made.left_out
        if study.bins is not None:
            names.setdefault("observation", Bins(study.bins).columns)
        source: Any = as_source(data, names)
        if isinstance(study.actions, int) and source.names_in_log():
            raise InvalidInput(
                f"{source.name} has words for actions, but the study numbers them: the study needs "
                "their names, actions = [...]",
                code="actions-unnamed",
            )
        if study.bins is not None:
            source = BinnedSource(source, Bins(study.bins))
        worlds = logged_worlds(
            source, horizon=study.horizon, n_states=study.states or None,
            n_actions=study.n_actions, reward_range=study.reward_range,
            action_names=study.federation.action_names,
        )  # fmt: skip
        if len(worlds) != 1:
            raise InvalidInput(
                f"{source.name} is of {plural(len(worlds), 'agent')}, but a site sends one file "
                "for all of its records: leave the agent column out",
                code="wrong-number-of-logs",
            )
        privacy, log = study.privacy, worlds[0].log
        if privacy is not None and privacy["unit"] == "user" and log.per_patient is None:
            raise InvalidInput(
                f"the study protects patients, but {source.name} does not say whose episodes it "
                "holds: add a column patient, or name it with --column patient=NAME",
                code="patient-unknown",
            )
        n = len(study.names)
        plan = study.federation.plan(worlds * n, n)
        return cls(study, worlds[0], plan, first, left_out)

    def cohort(self) -> Cohort:
        """The site's agent before its first message."""
        return cohort_of(self.plan, self.first, self.first + 1)

    @cached_property
    def upload(self) -> Upload:
        """What it would send if nothing hid it."""
        cohort = self.cohort()
        for message in (start_of(self.study), *requests(self.study)):
            reply = cohort.receive(message)
        assert isinstance(reply, Upload)
        return reply

    @property
    def episodes(self) -> int:
        """How many of them count."""
        return min(self.world.log.episodes, self.study.episodes)

    @property
    def fewest(self) -> int:
        """Episodes in the emptiest step that any reached."""
        counts = self.world.log.targets(self.study.horizon, self.study.parameters.stationary)
        return int(counts[counts > 0].min(initial=self.episodes))

    @property
    def scalars(self) -> int:
        """How many numbers are sent of them."""
        if self.study.hidden:
            return self.study.layout.upload_words(1)
        return self.upload.scalars

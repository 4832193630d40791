"""Who takes part in a round, whose last response is carried, and what happens at a return.

Two sources say who is away: a schedule of draws and stays, which every party can follow
(`core.participation_schedule`), and a transport that cannot reach a cohort. For the round they mean
the same. Who is away neither plays nor sends; the round closes without it: its increment is zero
and its response is the last one that was accepted, so that Λ and Σb keep describing the same
episodes of it. That holds in the pass after the last round, too: the weights are the least-squares
solution over all data that Λ has, with older values of V in the targets of those that are away.

They differ in what there is to bring along at a return. Who was away by schedule has played
nothing: it gets the model and goes on with its own next episode. Who could not be reached plays
what it missed, with the models of those rounds, and its increments come with its next upload
(`remote.absentees`). A cohort that is excluded does not return: all that it contributed is taken
out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedlsvi.core.participation_schedule import Attendance, ParticipationSchedule
from fedlsvi.protocol.messages import Upload

CARRIED, ATTENDANCE = "carry.b", "attendance."
"""Names of the arrays in a checkpoint."""


class Membership:
    """Who is there, agent by agent and cohort by cohort.

    Args:
        n_agents: M.
        cuts: (first agent, number of agents) of each cohort, where cohorts may be out of reach.

    Attributes:
        attendance: Who is there by schedule; None where nobody is away on purpose.
        excluded: Cohorts that the run continues without, and why.
        away: Cohorts that cannot be reached, and the first round that each of them missed.
    """

    def __init__(self, n_agents: int, cuts: Sequence[tuple[int, int]] = ()) -> None:
        self.n_agents, self.cuts = n_agents, cuts
        self.attendance: Attendance | None = None
        self.excluded: dict[int, str] = {}
        self.away: dict[int, int] = {}
        self._responses: dict[int, np.ndarray] = {}  # step → (M, d), as they were last accepted
        self._everyone = list(range(len(cuts)))
        self._began = 0  # the last episode before the round under way

    def follow(self, schedule: ParticipationSchedule, logs: bool) -> None:
        """Agents come and go by this schedule; all are there to read the logs, if there are any."""
        self.attendance = Attendance(schedule)
        if logs:
            self.attendance.read_logs()

    def begin(self, t: int) -> np.ndarray:
        """A round begins after episode t; the agents that were away in the round before it and are
        there by schedule."""
        self._began = t
        if self.attendance is None:
            return np.empty(0, np.int64)
        before = self.attendance.there
        self.attendance.begin(t)
        return np.setdiff1d(self.attendance.there, before)

    def close(self, t: int) -> None:
        """The round has ended with episode t of the federation."""
        if self.attendance is not None:
            self.attendance.close(t - self._began)

    def cohorts_there(self) -> list[int]:
        """Cohorts that are asked in the round under way."""
        if not self.excluded and not self.away:
            return self._everyone
        missing = self.excluded.keys() | self.away.keys()
        return [c for c in self._everyone if c not in missing]

    def agents_there(self) -> np.ndarray | None:
        """Numbers of the agents that take part in the round under way; None is all of them."""
        reached = None
        if self.excluded or self.away:
            ranges = [np.arange(*span(self.cuts[c])) for c in self.cohorts_there()]
            reached = np.concatenate([np.empty(0, np.int64), *ranges])
        if self.attendance is None:
            return reached
        there = self.attendance.there
        return there if reached is None else np.intersect1d(there, reached)

    def there_in(self, k: int, t: int, c: int) -> np.ndarray:
        """Positions of the agents of a cohort that were there by schedule in round k, which began
        after episode t."""
        first, agents = self.cuts[c]
        if self.attendance is None or k == 0:
            return np.arange(agents)  # all are there to read the logs
        there = self.attendance.schedule.during(k, t) - first
        here: np.ndarray = there[(there >= 0) & (there < agents)]
        return here

    def last_round(self, c: int, t: int, end: int | None) -> np.ndarray:
        """(m,) the last episode of the last round that each agent of a cohort was in, up to the one
        that ended with episode t, or with `end` if that is in the sums too."""
        first, agents = self.cuts[c]
        if self.attendance is None:
            return np.full(agents, t if end is None else end)
        last: np.ndarray = self.attendance.last[first : first + agents].copy()
        there = self.attendance.there - first
        if end is not None:
            last[there[(there >= 0) & (there < agents)]] = end
        return last

    def all_there(self, first: int, agents: int) -> bool:
        """Whether all of these agents are there by schedule."""
        if self.attendance is None:
            return True
        there = self.attendance.there
        return bool(((there >= first) & (there < first + agents)).sum() == agents)

    def carried(self, first: int, upload: Upload) -> Upload:
        """An upload of the agents from `first` on with the last response of those that are away by
        schedule, and no increment of theirs."""
        agents = len(upload.b)
        if self.attendance is None or upload.every_step or self.all_there(first, agents):
            return upload
        away = ~np.isin(np.arange(first, first + agents), self.attendance.there)
        gram, b = upload.gram.copy(), upload.b.copy()
        gram[away], b[away] = 0.0, self.last_response(first, agents, upload.h, b.shape[1])[away]
        return Upload(upload.h, gram, b, fit=upload.fit)

    def last_response(self, first: int, agents: int, h: int, width: int) -> np.ndarray:
        """b_h of these agents as it was last accepted, the first `width` columns; 0 before that."""
        accepted = self._responses.get(h)
        if accepted is None:
            return np.zeros((agents, width))
        return accepted[first : first + agents, :width]

    def accept(self, uploads: Sequence[Upload]) -> None:
        """The uploads of one step of all agents, in their order, are in the sums."""
        self._responses[uploads[0].h] = np.concatenate([upload.b for upload in uploads])

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint between two rounds."""
        arrays: dict[str, np.ndarray] = {}
        if self._responses:
            steps = sorted(self._responses)
            arrays[CARRIED] = np.stack([self._responses[h] for h in steps], axis=1)
        if self.attendance is not None:
            arrays |= {ATTENDANCE + k: array for k, array in self.attendance.state().items()}
        return arrays, {}

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        if CARRIED in arrays:
            self._responses = {
                h: b.copy() for h, b in enumerate(np.moveaxis(arrays[CARRIED], 1, 0), start=1)
            }
        if self.attendance is not None:
            names = [name for name in arrays if name.startswith(ATTENDANCE)]
            self.attendance.restore({k.removeprefix(ATTENDANCE): arrays[k] for k in names})


def span(cut: tuple[int, int]) -> tuple[int, int]:
    """The first agent of a cohort, and the first one after it."""
    return cut[0], cut[0] + cut[1]

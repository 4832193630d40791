"""Passes over sums: who answers, who adds, who solves, whatever the head is.

Every synchronisation is a backward pass through one `Server`: V_{H+1} = 0; for h = H … 1 agents
send Λ_h^loc and b_h = Σφ(r + V_{h+1}(x')), the server adds them, solves w_h = Λ_h⁻¹b_h and sends
the model back, and a head turns it into V_h. An online run, PEVI and the evaluation of a policy
differ in the head and in how often they ask: `connect` and `in_process` join server and agents for
all of them, so all have the same sums, protections and ledger.

After the last round there is one more pass, with another head and the Λ that is there: a policy to
deploy. The policy that explores keeps its bonus. No episode is played, so d scalars per agent and
step go up and d come down. The agents' policy that explores, and what they know, stay what they
were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import factorise
from fedlsvi.privacy.sums import FloatSums, sums_of
from fedlsvi.protocol.messages import Exploit, Model, Upload
from fedlsvi.protocol.server import Agents, Server
from fedlsvi.protocol.transport import Answering, InProcess, Transport, layout

if TYPE_CHECKING:
    from fedlsvi.experience.values import TabularValues
    from fedlsvi.protocol.one_trip import OneTrip
    from fedlsvi.protocol.private_steps import PrivateSteps


class Connected(NamedTuple):
    """A server and the agents that it asks."""

    server: Server
    agents: Agents
    between: OneTrip | PrivateSteps | None
    """What adds up the agents before the server hears of them, where something does."""


def connect(p: Parameters, transport: Transport, values: TabularValues | None = None) -> Connected:
    """A server with the sums and protections of these numbers.

    Args:
        p: The numbers in force.
        transport: The way to the agents.
        values: With one trip per synchronisation: what turns models into values.
    """
    size = layout(p)
    # in one trip, and in a private run, agents are added before the server hears of them
    added = p.exchange == "one-trip" or p.privacy is not None
    sums = FloatSums(size) if added else sums_of(p, size)
    top = p.ceilings if p.noisy else None
    server = Server(size, p.lam, p.gamma, p.signed_beta, p.episodes, sums, top)
    between: OneTrip | PrivateSteps | None = None
    if p.exchange == "one-trip":
        from fedlsvi.protocol.one_trip import OneTrip

        assert values is not None  # `Settings.resolve` wants finite states
        between = OneTrip(transport, values, size, p)
    elif p.privacy is not None:
        from fedlsvi.protocol.private_steps import PrivateSteps

        between = PrivateSteps(transport, size, p)
    return Connected(server, transport if between is None else between, between)


def in_process(cohorts: Sequence[Answering], p: Parameters) -> InProcess:
    """The transport to cohorts in this process, which protects what they send."""
    if p.aggregation != "secure" and p.privacy is None:
        return InProcess(cohorts, p.trigger, p.overshoot)
    from fedlsvi.protocol.protected import ProtectedInProcess

    return ProtectedInProcess(cohorts, p)


class SecondPass(NamedTuple):
    """What a second pass found.

    Attributes:
        w: (H, d) the weights.
        fit: (M, H, 5) as in `Upload`, zeros for agents that did not answer.
    """

    w: np.ndarray
    fit: np.ndarray


def second_pass(server: Server, agents: Agents, beta: float) -> SecondPass:
    """One more pass with the Λ that is there and another β; agents answer in `protocol.heads`."""
    w, nothing = np.zeros_like(server.w), np.empty(0)
    fit = np.zeros((server.layout.n_agents, len(w), FIT))
    uploads = agents.broadcast(Exploit(beta))
    for h in range(len(w), 0, -1):
        _, b = server.sums(uploads, h)
        first = 0
        for upload in (reply for reply in uploads if isinstance(reply, Upload)):
            fit[first : first + len(upload.fit), h - 1] = upload.fit
            first += len(upload.b)
        w[h - 1] = factorise(server.gram[h - 1]).solve(b[: server.layout.dim])
        uploads = agents.broadcast(Model(h, w[h - 1].copy(), nothing))
    return SecondPass(w, fit)

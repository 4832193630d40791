"""The study of lying sites: every attack is found, and its server compares as that over frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.protocol.messages import Upload
from fedlsvi.remote.codec import decode_reply, encode
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from repeats import repeats
from studies import liars
from studies.liars import Sites, Trial, play
from transports_over_frames import over_frames

M, EPISODES = 4, 120
ENV = RandomLinearMDP(n_states=8, n_actions=2, dim=4, horizon=3, seed=2)


@pytest.mark.parametrize("attack", liars.ATTACKS)
def test_every_attack_is_found(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liars, "EPISODES", 200)
    for instance in range(repeats(1, 5)):
        result = play(Trial(5, 0.05, attack, "exclude", instance))
        assert 0 < result.found <= 60
        assert result.wrong == 0


def halved_over_frames(plan: Any) -> Any:
    """A transport on which the last site sends half of b, and is excluded for it."""
    transport: Any = over_frames(M, retry=RetryPolicy(PATIENCE, 1, suspicious="exclude"))(plan)
    honest = transport.handlers[-1].handle

    def handle(frame: bytes) -> bytes:
        answer: bytes = honest(frame)
        address, reply = decode_reply(answer, transport.layout)
        if not isinstance(reply, Upload):
            return answer
        return encode(Upload(reply.h, reply.gram, 0.5 * reply.b), address)

    transport.handlers[-1].handle = handle
    return transport


def test_the_study_compares_as_the_server_does() -> None:
    """The same model as over frames, with a liar that is excluded on the way."""
    beta = 1.2  # a run in which the excluded agent, who still plays in process, ends no round
    there = FedLSVI(n_agents=M, beta=beta).learn(
        ENV, EPISODES, 0, transport=halved_over_frames, progress=False
    )
    assert any("excluded" in note for record in there.records for note in record.notes)
    here = FedLSVI(n_agents=M, policy="explore", beta=beta).learn(
        ENV, EPISODES, 0, progress=False,
        transport=lambda plan: Sites(plan, "halved", "exclude", 0.0),
    )  # fmt: skip
    np.testing.assert_allclose(here.w, there.w, rtol=1e-9, atol=1e-12)
    assert here.taus == there.taus

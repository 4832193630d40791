"""What comparators keep over many episodes, agents and interruptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agreement import assert_close
from algorithms.literal_linear import literal_coop
from algorithms.roster import CONTINUOUS, continued, make, plain
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.shared import thompson_kernels
from fedlsvi.envs import ContinuousLinearMDP
from problems import one_hot, simplex

PAPER = {"preset": "paper", "lam": 1.0, "beta": 1.0}
THRESHOLD = 80.0


@pytest.mark.parametrize("name", ["coop-lsvi", "coopts-phe"])
def test_unsent_episodes_are_all_that_was_seen(name: str) -> None:
    """40 episodes: the buffer of 16 has grown twice."""
    session = registry.make(name, n_agents=2, threshold=1e9).prepare(one_hot(1).one, 40, 1)
    agent = session.player.agents[1]  # type: ignore[attr-defined]
    seen = []
    for t in range(1, 41):
        seen.append([part.copy() for part in agent.episode(t)])
        agent.plan()
    for kept, parts in zip(agent.unsent(), zip(*seen, strict=True), strict=True):
        assert np.array_equal(kept, np.concatenate(parts, axis=2))


def test_coop_shares_everything_since_the_last_time() -> None:
    """Synchronisations after more than 16 and more than 32 episodes, against explicit lists."""
    problem, M, T, H = simplex(8, S=4, A=2, d=3, H=2), 2, 60, 2
    session = registry.make("coop-lsvi", n_agents=M, threshold=THRESHOLD, **PAPER).prepare(
        problem.envs, T, 1
    )
    followed: list[list[Any]] = [[] for _ in range(T)]
    for agent in session.player.agents:  # type: ignore[attr-defined]

        def watch(t: int, agent: Any = agent, play: Any = agent.episode) -> Any:
            followed[t - 1].append(agent.policy.copy())
            return play(t)

        agent.episode = watch
    ends = [record.last for record in session.rounds() if record.rounds]
    syncs, policies, _, learners = literal_coop(
        problem.envs, problem.phi, M, T, 1, 1.0, 1.0, [float(H)] * H, THRESHOLD, followed
    )
    assert ends == syncs
    assert syncs == [18, 52]
    assert np.array_equal(followed, policies)
    for agent, learner in zip(session.player.agents, learners, strict=True):  # type: ignore[attr-defined]
        w, gram = learner.model()
        assert_close(agent.sums.w, w, "w")
        assert_close(agent.sums.gram, gram, "Λ")


@pytest.mark.parametrize(("name", "stream"), [("coopts-phe", 1), ("coopts-lmc", 2)])
@pytest.mark.parametrize("problem", [one_hot(1), simplex(1)], ids=lambda p: p.name)
def test_noise_is_that_of_the_agent_and_the_episode(name: str, stream: int, problem: Any) -> None:
    """The policy of episode t is drawn with the normals of (seed, stream, m, t), nobody else's."""
    session = registry.make(name, n_agents=3, threshold=6.0).prepare(problem.envs, 5, 7)
    drawn: dict[tuple[int, int], np.ndarray] = {}
    for agent in session.player.agents:  # type: ignore[attr-defined]
        drawn[agent.m, 1] = agent.noise.copy()

        def watch(agent: Any = agent, renew: Any = agent.renew) -> None:
            renew()
            drawn[agent.m, agent.t + 1] = agent.noise.copy()

        agent.renew = watch
    for _ in session.rounds():
        pass
    assert set(drawn) >= {(m, t) for m in range(3) for t in range(1, 6)}
    for (m, t), noise in drawn.items():
        expected = np.empty_like(noise)
        thompson_kernels.normals(7, stream, m, t, expected)
        assert np.array_equal(noise, expected), f"agent {m}, episode {t}"
    assert len({noise.tobytes() for noise in drawn.values()}) == len(drawn)


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_real_states_can_be_continued_after_any_record(name: str) -> None:
    """state → restore between two records, and the rest of the run has the same bits."""
    learner = make(name, **({"period": 3} if name == "periodic" else {}))
    env = ContinuousLinearMDP(dim=4, n_actions=2, horizon=2, points=16, cells=16)
    whole = learner.learn(env, 12, 3, progress=False)
    run = continued(learner, env, 12, 4)
    assert run.regret is not None
    assert run.regret.tobytes() == whole.regret.tobytes()
    assert run.w.tobytes() == whole.w.tobytes()
    assert run.gram.tobytes() == whole.gram.tobytes()
    assert plain(run) == plain(whole)

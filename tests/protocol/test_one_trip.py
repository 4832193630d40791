"""One trip per synchronisation: the paper's rounds and models, in fewer exchanges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from agreement import assert_close
from expecting import refused
from fedlsvi import FedLSVI, resume
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.errors import InvalidSetting, MessageRefused
from fedlsvi.experience.cell_counts import CellCounts
from fedlsvi.learner import drive
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Layout, Models, NextStates, Stop, Upload
from fedlsvi.protocol.transport import InProcess
from fedlsvi.remote.codec import Address, decode_reply, encode
from fedlsvi.remote.guard import Refusal
from fedlsvi.storage.run_writer import RunWriter, begin
from transports_over_frames import assert_same, dying, over_frames

ZOO = [*problems.finite_zoo(), problems.heterogeneous(M=5), problems.chain(S=3, H=1)]
"""Some of them are stationary: there all steps share their sums."""
PROBLEM = problems.simplex()


def learn(
    problem: Any, exchange: Any = "one-trip", aggregation: Any = "float", **options: Any
) -> Any:
    learner = FedLSVI(
        n_agents=5, gamma=6.0, beta=0.5, lam=0.5, exchange=exchange, aggregation=aggregation
    )
    return learner.learn(
        problem.envs, 40, 3, features=problem.features, progress=False, keep_models=True, **options
    )


def assert_alike(one: Any, other: Any) -> None:
    """The same rounds, and w and Λ after each within 1e-9."""
    assert one.taus == other.taus
    for k, (mine, theirs) in enumerate(zip(one.models, other.models, strict=True), start=1):
        assert_close(mine[0], theirs[0], f"w after round {k}")
        assert_close(mine[1], theirs[1], f"Λ after round {k}")


@pytest.mark.parametrize("problem", ZOO, ids=lambda problem: problem.name)
def test_rounds_and_models_are_those_of_the_paper(problem: Any) -> None:
    trip = learn(problem)
    assert_alike(trip, learn(problem, "stepwise"))
    assert_same(trip, learn(problem, cohorts=2))
    exact = learn(problem, aggregation="exact")
    assert_alike(exact, trip)
    secure = learn(problem, aggregation="secure", cohorts=3)
    assert secure.w.tobytes() == exact.w.tobytes()
    for run in (trip, exact, secure):
        assert run.bounds["scalars"].measured == run.bounds["scalars"].bound


def test_agrees_with_the_literal_loop() -> None:
    s = problems.Setting(M=3, T=30, gamma=4.0)
    literal = PROBLEM.literal(s)
    run = PROBLEM.learn(s, exchange="one-trip")
    assert not run.parameters.stationary
    assert list(run.taus) == literal.taus
    for mine, theirs in zip(run.models, literal.models, strict=True):
        assert_close(mine[0], theirs[0], "w")
        assert_close(mine[1], theirs[1], "Λ")


def test_numbered_observations_of_a_black_box() -> None:
    env = as_environment("FrozenLake-v1", horizon=6, tables=False)
    learners = [FedLSVI(n_agents=2, gamma=4.0, exchange=e) for e in ("stepwise", "one-trip")]
    runs = [learner.learn(env, 12, 1, progress=False, keep_models=True) for learner in learners]
    assert_alike(*runs)


def test_a_sparse_table_of_next_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experience that keeps only the cells P can reach sends the same increments."""
    dense = learn(problems.one_hot())
    monkeypatch.setattr("fedlsvi.experience.kinds.prefers_sparse", lambda *size: True)
    sparse = learn(problems.one_hot())
    assert isinstance(cohort_of(sparse.plan, 0, 1).experience.memory, CellCounts)
    assert_alike(dense, sparse)
    assert sparse.ledger.scalars == dense.ledger.scalars
    by_step = learn(problems.transition_rewards())
    monkeypatch.undo()
    assert_alike(learn(problems.transition_rewards()), by_step)


def test_some_problems_share_their_steps() -> None:
    """… or the comparisons above would show nothing about that."""
    shared = [learn(problem).parameters.stationary for problem in ZOO]
    assert any(shared)
    assert not all(shared)


def count(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The kinds of messages that go to the agents from now on."""
    sent: list[type] = []
    deliver = InProcess.deliver

    def spy(self: InProcess, message: Any) -> Any:
        sent.append(type(message))
        return deliver(self, message)

    monkeypatch.setattr(InProcess, "deliver", spy)
    return sent


def test_one_upload_for_each_synchronisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """K uploads instead of K·H, and two broadcasts instead of H + 1."""
    sent = count(monkeypatch)
    run = learn(PROBLEM)
    kinds = {kind.__name__: sent.count(kind) for kind in set(sent)}
    assert kinds["Stop"] == kinds["Models"] == run.rounds
    assert "Model" not in kinds


def test_only_increments_of_the_round_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features sum to one, so that the entries of N_h count the episodes of the round."""
    seen: list[Upload] = []
    deliver = InProcess.deliver

    def spy(self: InProcess, message: Any) -> Any:
        replies = deliver(self, message)
        seen.extend(reply for reply in replies if isinstance(reply, Upload))
        return replies

    monkeypatch.setattr(InProcess, "deliver", spy)
    run = learn(PROBLEM)
    lengths = np.diff(run.taus)
    for length, reply in zip(lengths, seen, strict=True):
        for following in reply.following:
            np.testing.assert_allclose(following.values.sum(), length * (3 - 1), rtol=1e-12)


@pytest.mark.parametrize("aggregation", ["float", "exact", "secure"])
@pytest.mark.parametrize("problem", [PROBLEM, problems.one_hot(), problems.deterministic()])
def test_the_same_over_frames(problem: Any, aggregation: Any) -> None:
    here = learn(problem, aggregation=aggregation, cohorts=3)
    assert_same(here, learn(problem, aggregation=aggregation, transport=over_frames(3)))


@pytest.mark.parametrize("aggregation", ["float", "secure"])
@pytest.mark.parametrize("after", [9, 10, 11, 12])
def test_a_server_that_dies_resumes_to_the_same_bits(
    after: int, aggregation: Any, tmp_path: Path
) -> None:
    learner = FedLSVI(
        n_agents=5, gamma=6.0, beta=0.5, lam=0.5, exchange="one-trip", aggregation=aggregation
    )
    here = learn(PROBLEM, aggregation=aggregation, cohorts=3)
    make = over_frames(3, tmp_path / "journals")

    session = learner.prepare(PROBLEM.envs, 40, 3, transport=dying(make, after))
    folder = begin(tmp_path / "run", session.plan, "fed-lsvi", learner.settings)
    with pytest.raises(KeyboardInterrupt):
        drive(session, [RunWriter(folder, session, 0.0)])
    done = resume(tmp_path / "run", env=PROBLEM.envs, progress=False, transport=make)
    assert done.taus == here.taus
    assert done.w.tobytes() == here.w.tobytes()
    assert done.bounds["scalars"].measured == done.bounds["scalars"].bound


def test_continuous_states_are_refused() -> None:
    with refused(InvalidSetting, "one-trip-needs-states"):
        learn(problems.continuous())


def test_a_budget_of_scalars_is_refused() -> None:
    with refused(InvalidSetting, "bad-scalars"):
        FedLSVI(n_agents=2, exchange="one-trip", scalars=10_000)


# frames and checks

LAYOUT = Layout(3, 2, 2, "packed", states=4)
ADDRESS = Address(1, 2, 3, 4, 1, 2)


def reply(*following: NextStates) -> Upload:
    return Upload(1, np.ones((2, 2, 3)), np.ones((2, 2, 2)), following)


SPARSE = NextStates(np.array([0, 5]), np.array([1.0, 2.0]))
WHOLE = NextStates(np.empty(0, np.int64), np.arange(8.0))
NOTHING = NextStates(np.empty(0, np.int64), np.empty(0))


@pytest.mark.parametrize("following", [(SPARSE, WHOLE), (WHOLE, NOTHING), (NOTHING, SPARSE)])
def test_increments_survive_a_frame(following: tuple[NextStates, NextStates]) -> None:
    sent = reply(*following)
    _, got = decode_reply(encode(sent, ADDRESS), LAYOUT)
    assert isinstance(got, Upload)
    for mine, theirs in zip(got.following, following, strict=True):
        assert mine.cells.tolist() == theirs.cells.tolist()
        assert mine.values.tolist() == theirs.values.tolist()
        assert mine.whole == theirs.whole
    assert (got.gram.tolist(), got.b.tolist()) == (sent.gram.tolist(), sent.b.tolist())


@pytest.mark.parametrize("cells", [[-1, 3], [3, 8], [5, 5], [5, 2]])
def test_cells_that_do_not_exist_are_refused(cells: list[int]) -> None:
    bad = NextStates(np.array(cells), np.ones(2))
    with refused(MessageRefused, "bad-frame-cells"):
        decode_reply(encode(reply(bad, WHOLE), ADDRESS), LAYOUT)


def test_what_no_agent_could_have_seen_is_refused() -> None:
    """More next states than episodes, or negative ones, are noticed by the server."""
    for add in (50.0, -0.5):

        def make(plan: Any, add: float = add) -> Any:
            transport = over_frames(3)(plan)
            inner = transport.exchange

            def exchange(frames: Any, deadline: float) -> Any:
                for c, data in inner(frames, deadline):
                    address, came = decode_reply(data, transport.layout)
                    if isinstance(came, Upload) and c == 1:
                        values = came.following[0].values.copy()
                        values[0] += add
                        lie = NextStates(came.following[0].cells, values)
                        changed = replace(came, following=(lie, *came.following[1:]))
                        data = encode(changed, address)
                    yield c, data

            transport.exchange = exchange  # type: ignore[method-assign]
            return transport

        with refused(Refusal, "impossible-message", "N") as caught:
            learn(PROBLEM, transport=make)
        assert isinstance(caught.value, Refusal)
        assert caught.value.agent == 1


def test_a_site_takes_all_models_at_once_or_none() -> None:
    """Between Stop and Models nothing else is answered, and a step's model never."""
    from fedlsvi.protocol.messages import Model
    from fedlsvi.remote.endpoint import RequestOrder

    plan = FedLSVI(n_agents=2, exchange="one-trip").prepare(PROBLEM.envs, 40).plan
    order = RequestOrder(plan.parameters)
    d, P, H = 4, 10, 3
    models, model = Models(np.zeros((H, d)), np.ones((H, P))), Model(H, np.zeros(d), np.ones(P))
    world: Any = type("World", (), {"t": 0, "length": 0})()
    with refused(MessageRefused, "model-out-of-order"):
        order.check(models, world)
    order.follow(Stop(40))
    order.check(models, world)
    with refused(MessageRefused, "model-out-of-order"):
        order.check(model, world)
    order.follow(models)
    with refused(MessageRefused, "model-out-of-order"):
        order.check(models, world)

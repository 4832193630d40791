"""How much can a curious server recover from its sites' uploads?

Λ^loc = Σ n(x, a) φφᵀ is linear in the visit counts n(x, a), and the features are known. The server
also knows the policy, because agents are greedy for the model that it computed. So there are two
attacks on each upload, both by non-negative least squares, one with a column for every pair (x, a)
and one with a column for every state and its action. The table shows the share of a site's visits
that the solution gets right.

There are three sites of one agent, rounds of exactly 1 to 1,000 episodes (`min_round` and γ are the
length), three rounds of five steps each. For comparison there are the guess that all states are
visited equally, and the attack on masked uploads, whose figures vary a little because keys have no
seed. A second table has whole runs at the practical preset, without a floor and with one of 100.

`python -m studies.reconstruction` prints the tables of reconstruction.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from fedlsvi import FedLSVI
from fedlsvi.core.fixed_point import decode
from fedlsvi.core.random import uniforms
from fedlsvi.core.statistics import pack
from fedlsvi.envs import RandomLinearMDP, RandomMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.features.recovery import upload_map
from fedlsvi.protocol.messages import MaskedUpload, Upload

SITES, ROUNDS, SEED = 3, 3, 1
LENGTHS = (1, 10, 30, 100, 300, 1_000)
FLOOR, EPISODES = 100, 1_000

PROBLEMS: dict[str, Callable[[], FiniteMDP]] = {
    "one-hot, S = 10, A = 3": lambda: RandomMDP(n_states=10, n_actions=3, horizon=5, seed=0),
    "S = 10, A = 5, d = 10": lambda: RandomLinearMDP(10, 5, 10, 5, seed=0),
    "S = 20, A = 4, d = 8": lambda: RandomLinearMDP(20, 4, 8, 5, seed=0),
    "S = 60, A = 4, d = 8": lambda: RandomLinearMDP(60, 4, 8, 5, seed=0),
}


@dataclass(frozen=True)
class Sent:
    """One site's upload of one round and step, and what is true.

    Attributes:
        h: Step.
        length: Episodes of the round.
        reply: What the server received.
        policy: The action that the site's agent took in each state, (S,).
        visits: Times that each pair (x, a) was visited, (S·A,).
    """

    h: int
    length: int
    reply: Upload | MaskedUpload
    policy: np.ndarray
    visits: np.ndarray


@dataclass(frozen=True)
class View:
    """A run as its server saw it: all uploads, in order, and the fixed point's bits."""

    uploads: list[Sent]
    bits: int
    rounds: int


def watched(env: FiniteMDP, episodes: int, **settings: Any) -> View:
    """Play a run with one agent at every site, and keep what leaves them and what they did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrafficWarning)
        learner = FedLSVI(
            SITES, stationary=False, diversity=0, policy="explore", bonus="constant", **settings
        )
        session = learner.prepare(env, episodes, SEED, cohorts=SITES, keep_models=True)
        player: Any = session.player
        broadcast, rounds = player.transport.broadcast, session.rounds()
        replies: list[tuple[int, Upload | MaskedUpload]] = []

        def heard(message: Any) -> Any:
            answers = broadcast(message)
            uploads = (Upload, MaskedUpload)
            replies.extend((m, one) for m, one in enumerate(answers) if isinstance(one, uploads))
            return answers

        player.transport.broadcast = heard
        seen = []
        for record in rounds:
            policy = session.policies[-1].astype(int)
            visits = [visited(env, policy, m, record.first, record.length) for m in range(SITES)]
            seen += [
                Sent(reply.h, record.length, reply, policy[reply.h - 1], visits[m][reply.h - 1])
                for m, reply in replies
            ]
            replies.clear()
        bits = player.parameters.scale_bits
        session.close()
    return View(seen, bits, len(session.records))


def visited(env: FiniteMDP, policy: np.ndarray, agent: int, first: int, n: int) -> np.ndarray:
    """(H, S·A) how often an agent came by each pair in n episodes from `first` on: draws are keyed,
    so its episodes can be played again."""
    counts = np.zeros((env.horizon, env.n_states * env.n_actions), int)
    for u in uniforms(SEED, [agent], first, n, env.horizon + 1)[0]:
        x = env.first_state(agent, u[0])
        for h in range(1, env.horizon + 1):
            a = int(policy[h - 1, x])
            counts[h - 1, x * env.n_actions + a] += 1
            _, x = env.step(h, x, a, u[h])
    return counts


def packed_gram(sent: Sent, dim: int, bits: int = 0) -> np.ndarray:
    """Λ^loc as an upload has it, masked or not: packed, or its diagonal where it has no more."""
    reply = sent.reply
    return reply.gram[0] if isinstance(reply, Upload) else decode(reply.words, bits)[:-dim]


def solve(rows: np.ndarray, gram: np.ndarray, total: int) -> np.ndarray:
    """Counts of visits to the features `rows`, (n, d), `total` together, that explain Λ^loc best.

    Shares of non-negative least squares, rounded so that they sum up to the length of the round.
    """
    dim = rows.shape[1]
    if len(gram) == dim:
        columns, weights = np.vstack([(rows**2).T, np.ones(len(rows))]), np.ones(dim)
    else:
        columns = upload_map(rows)
        weights = pack(np.where(np.eye(dim) > 0.0, 1.0, np.sqrt(2.0)), "packed")
    target = np.append(gram * weights, total)
    found, _ = nnls(columns, target / np.abs(target).max(), maxiter=50 * len(rows))
    return spread(found, total)


def spread(weights: np.ndarray, total: int) -> np.ndarray:
    """`total` as integers in proportion to weights; where these are all 0, alike."""
    weights = weights if weights.sum() > 0.0 else np.ones(len(weights))
    share = weights * (total / weights.sum()) + 1e-9
    counts = np.floor(share)
    rest = total - int(counts.sum())
    if rest > 0:
        counts[np.argsort(counts - share, kind="stable")[:rest]] += 1.0
    return np.asarray(counts)


def recovered(guess: np.ndarray, truth: np.ndarray) -> float:
    """The share of visits that a guess has right."""
    return float(np.minimum(guess, truth).sum() / truth.sum())


def from_features(sent: Sent, phi: np.ndarray, bits: int = 0) -> float:
    """What is read by who knows the table `phi`, (S, A, d)."""
    found = solve(phi.reshape(-1, phi.shape[2]), packed_gram(sent, phi.shape[2], bits), sent.length)
    return recovered(found, sent.visits)


def from_policy(sent: Sent, phi: np.ndarray, bits: int = 0) -> float:
    """What is read by who knows the policy, too."""
    states = np.arange(len(phi))
    found = solve(phi[states, sent.policy], packed_gram(sent, phi.shape[2], bits), sent.length)
    return recovered(found, sent.visits.reshape(phi.shape[:2])[states, sent.policy])


def from_nothing(sent: Sent, phi: np.ndarray) -> float:
    """What is right if all states are said to be visited alike, with the policy known."""
    truth = sent.visits.reshape(phi.shape[:2])[np.arange(len(phi)), sent.policy]
    return recovered(spread(np.ones(len(phi)), sent.length), truth)


def table_of(env: FiniteMDP) -> np.ndarray:
    """φ of all pairs, (S, A, d)."""
    bound: Any = env.default_features()
    if bound.one_hot:
        return np.eye(env.n_states * env.n_actions).reshape(env.n_states, env.n_actions, -1)
    return np.asarray(bound.table)


def shares(env: FiniteMDP, length: int) -> list[float]:
    """The means of both attacks, of the guess, and of the attack on masked uploads."""
    phi = table_of(env)
    fixed = {"gamma": float(length), "cap": "off", "rounds": "off", "min_round": length}
    plain = watched(env, ROUNDS * length, **fixed)
    hidden = watched(env, ROUNDS * length, aggregation="secure", **fixed)
    assert {sent.length for sent in plain.uploads} == {length}
    return [
        float(np.mean([from_features(sent, phi) for sent in plain.uploads])),
        float(np.mean([from_policy(sent, phi) for sent in plain.uploads])),
        float(np.mean([from_policy(sent, phi, hidden.bits) for sent in hidden.uploads])),
        float(np.mean([from_nothing(sent, phi) for sent in plain.uploads])),
    ]


def whole_run(env: FiniteMDP, floor: int) -> list[str]:
    """Rounds, the shortest, and the share of all visits of a run that both attacks read."""
    phi = table_of(env)
    view = watched(env, EPISODES, min_round=floor)
    weights = [sent.length for sent in view.uploads]
    read = [np.average([attack(sent, phi) for sent in view.uploads], weights=weights)
            for attack in (from_features, from_policy)]  # fmt: skip
    return [str(view.rounds), str(min(weights)), *(f"{value:.2f}" for value in read)]


def main() -> None:
    """Print both tables."""
    lengths = [f"{length:,}" for length in LENGTHS]
    names = ("features known", "and the policy", "and the policy, secure sums", "no upload")
    rows = []
    for problem, make in PROBLEMS.items():
        found = [shares(make(), length) for length in LENGTHS]
        rows += [[problem if not i else "", name, *(f"{each[i]:.2f}" for each in found)]
                 for i, name in enumerate(names)]  # fmt: skip
    print(markdown(["problem", "attack", *lengths], rows), end="\n\n")
    head = ["problem", "floor", "rounds", "shortest", "features known", "and the policy"]
    print(markdown(head, [
        [problem, "none" if floor == 1 else str(floor), *whole_run(make(), floor)]
        for problem, make in PROBLEMS.items() for floor in (1, FLOOR)
    ]))  # fmt: skip


if __name__ == "__main__":
    main()

"""What protected a run, what its server saw and what it could not check, row by row."""

from __future__ import annotations

import math

from fedlsvi.checks import plural
from fedlsvi.core import theory
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.run import Run

Row = tuple[str, str]


def protections(run: Run) -> list[Row]:
    """(what, how it was in this run), for the report and `fedlsvi privacy`."""
    sent = run.ledger.scalars
    if not sent["up_stats"] + sent["up_raw"]:
        return [("left the agents", "nothing")]
    rows: list[Row] = []
    if sent["up_raw"]:
        rows.append(("raw trajectories", f"{plural(sent['up_raw'], 'scalar')} left the agents"))
    else:
        rows.append(("raw trajectories", "none left the agents"))
    rows += [_floor(run), ("smallest upload", _smallest(run)), *_sums(run), _signals(run)]
    return [*rows, *_trips(run), *_noise(run)]


def _floor(run: Run) -> Row:
    n = run.parameters.min_round
    if n == 1:
        return "floor under every upload", "none (min_round = 1)"
    what = f"no round, and no upload, covers fewer than {plural(n, 'episode')} (min_round = {n})"
    return "floor under every upload", what


def _smallest(run: Run) -> str:
    records = run.records
    least = min(record.smallest for record in records)
    counted = run.regret is not None or all(record.fewest is not None for record in records)
    doubt = "" if counted else "; at late steps perhaps fewer, where episodes end early"
    return f"{plural(least, 'episode')}{doubt}"


def _sums(run: Run) -> list[Row]:
    p = run.parameters
    seen = "the Gram matrix of each round and the responses of the whole history"
    if p.exchange == "one-trip":
        seen = "the Gram matrix, the sum of rewards and the table of next states of each round"
    if p.privacy is not None:
        seen = f"with noise, {seen}"
    unchecked = "data that were invented but are consistent"
    if p.privacy is not None:
        unchecked = "more than whether numbers are finite and not too large: noise hides the rest"
    if p.aggregation != "secure":
        how = "doubles" if p.aggregation == "float" else "integers in fixed point"
        return [
            ("sums", f'{how}, without masks (aggregation = "{p.aggregation}")'),
            ("the server saw", f"of every agent and step, {seen}"),
            ("the server could not check", unchecked),
        ]
    sites = run.counts.get("sites", p.n_agents)
    return [
        ("sums", f'masked, over {plural(sites, "site")} (aggregation = "secure")'),
        ("the server saw", f"of every step, {seen}, summed over all {plural(sites, 'site')}; "
                           "nothing about a single site, as long as two sites do not collude with "
                           "the server"),
        ("the server could not check", "the contribution of a single site: whether it is finite, "
                                       "consistent and covers exactly the round's episodes, and "
                                       "whether the agent that signalled had reason to"),
        ("the organiser", "on FLARE, whoever ran `federate init` holds the keys of all sites that "
                          "did not make their own, and could undo masks between those; with the "
                          "key of the authority (cert.json of the project) it could also stand "
                          "in for sites whose keys the others do not list under [peers]"),
    ]  # fmt: skip


def _noise(run: Run) -> list[Row]:
    """ε and δ, whom they protect and who added the noise."""
    p, release = run.parameters, run.parameters.release
    if release is None or p.privacy is None:
        return [("differential privacy", "none: no noise was added")]
    whom = "one episode"
    if p.privacy["unit"] == "user":
        whom = f"one user, of at most {plural(p.privacy['episodes_per_user'], 'episode')}"
    sites, c = run.counts.get("sites", p.n_agents), p.privacy["colluders"]
    who = "every agent added all of it"
    if p.aggregation == "secure":
        who = f"{plural(sites, 'site')} shared it, and {plural(sites - c, 'share')} would be enough"
    done = plural(run.rounds, "synchronisation")
    return [
        (
            "differential privacy",
            f"ε = {run.epsilon_spent:.4g} spent of {release.epsilon:g} at "
            f"δ = {release.delta:g}, for {whom}, over {done} of {release.rounds}",
        ),
        (
            "noise",
            f"discrete Gaussian, σ = {release.sigma:.4g} on Λ in a round{_summed(release)}"
            f"{_responses(release)}; {who}; from the operating system, so no seed reproduces this "
            "run",
        ),
        *_users(run),
    ]


def _summed(release: PrivateRelease) -> str:
    """The noise on the sums, where there are several rounds."""
    if release.rounds == 1:
        return ""
    largest = release.sigma * math.sqrt(float(release.factors.summed.max()))
    return f", correlated over rounds so that it is at most {largest:.4g} on the sums of them all"


def _responses(release: PrivateRelease) -> str:
    """The noise on b, where agents answer step by step, and how μ was divided."""
    if not isinstance(release, StepwiseRelease):
        return ""
    sigma = [release.response_sigma(h) for h in range(1, release.horizon + 1)]
    mu_gram, mu_b = release.split
    return (
        f", and σ = {min(sigma):.4g} to {max(sigma):.4g} on the responses of each step, drawn "
        f"independently (μ =  {release.mu:.3g}: {mu_gram:.3g} for Λ, {mu_b:.3g} for responses)"
    )


def _users(run: Run) -> list[Row]:
    """Who sees to it that nobody has more episodes than were counted for."""
    p = run.parameters
    if p.privacy is None or p.privacy["unit"] != "user":
        return []
    most = plural(p.privacy["episodes_per_user"], "episode")
    if run.counts.get("named_users"):
        return [("users", f"it was reported who played: no user had more than {most} at any site")]
    return [("users", f"the sites promise that no user has more than {most}; what they counted is "
                      "not known here")]  # fmt: skip


def _signals(run: Run) -> Row:
    if run.parameters.ends_are_public:
        return "signals", "reveal nothing: rounds end on a schedule that was public before the run"
    fired = sum(record.signals for record in run.records)
    return "signals", f"unprotected: {fired:,} times an agent revealed when, and at which step"


def _trips(run: Run) -> list[Row]:
    """How often agents were asked in a synchronisation, and what the other way would have sent."""
    p = run.parameters
    if run.algorithm != "fed-lsvi":
        return []
    if p.exchange == "stepwise":
        return [("trips per synchronisation", f"{p.horizon}, one per step")]
    signals = sum(record.signals for record in run.records)
    size = (p.dim, p.horizon, p.n_agents, p.packing)
    sites = run.counts.get("sites")
    stepwise = theory.scalars_total(*size, run.rounds, signals, sites, p.stationary, p.noisy)
    return [
        ("trips per synchronisation", f"1 instead of {p.horizon}"),
        ("scalars", f"{run.ledger.total:,}; step by step {stepwise:,}"),
    ]

"""What the uploads of a run give away: the fewest episodes in one, and the visits it determines."""

from __future__ import annotations

from collections.abc import Sequence

from fedlsvi.checks import plural
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.features.recovery import VisitRecovery
from fedlsvi.report.groups import Group
from fedlsvi.run import SENDS_SUMS, Run


def smallest_upload(runs: Sequence[Run]) -> str:
    """Episodes in the smallest upload."""
    uploaded = any(run.ledger.scalars["up_stats"] + run.ledger.scalars["up_raw"] for run in runs)
    return f"{min(r.smallest for run in runs for r in run.records):,}" if uploaded else "–"


def privacy(group: Group) -> str:
    """The smallest upload, and what can be read from any."""
    ledgers = [run.ledger.scalars for run in group.runs]
    if any(ledger["up_raw"] for ledger in ledgers):
        most = max(ledger["up_raw"] for ledger in ledgers)
        return (
            f"Raw trajectories left the agents: {plural(most, 'scalar')} of states, actions and "
            "rewards in one run. This algorithm does not keep them private."
        )
    if not any(ledger["up_stats"] for ledger in ledgers):
        return "Nothing was uploaded: the agents shared nothing."
    if (release := group.first.parameters.release) is not None:
        return _noise(group.first, release)
    sizes = [r.smallest for run in group.runs for r in run.records]
    least = min(sizes)
    seeds = "" if len(group.runs) == 1 else ", all seeds"
    rounds = f"{sizes.count(least):,} of {plural(len(sizes), 'round')}{seeds}"
    if least == 1:
        text = (
            f"The smallest upload covers a single episode ({rounds}). Such an upload reveals the "
            "episode's feature vectors up to their sign, although no raw trajectory was sent."
        )
    else:
        text = (
            f"No raw trajectory was sent. The smallest upload sums over {plural(least, 'episode')} "
            f"({rounds}). That of a single episode would reveal its feature vectors up to their "
            "sign."
        )
    return text + _visits(group.first) + _early_ends(group)


def _noise(run: Run, release: PrivateRelease) -> str:
    """What differential privacy promises of a run."""
    assert run.parameters.privacy is not None
    unit, spent = run.parameters.privacy["unit"], run.epsilon_spent
    return (
        f"Everything the agents sent, taken together, is differentially private: with one {unit} "
        f"replaced, any outcome is at most e^{spent:.3g} times as likely, except with probability "
        f"{release.delta:g} (ε = {spent:.4g} of {release.epsilon:g}). Rounds ended on a public "
        "schedule. Noise came from the operating system, so no seed reproduces this run."
    )


def _visits(run: Run) -> str:
    """Which visits whoever has the uploads and the feature table can compute."""
    if run.algorithm not in SENDS_SUMS:
        return ""
    found = run.recovery
    if found is None:
        return (
            " Whether longer rounds hide visits depends on the features; it is not known here, "
            "because there is no table of them."
        )
    return " Anyone who knows the feature table can do more. " + _solved(found)


def _solved(found: VisitRecovery) -> str:
    pairs, kinds = f"{found.pairs:,} state-action pairs", f"{found.kinds:,}"
    if found.rank is None:
        return f"How much was not computed: there are too many pairs ({pairs})."
    if found.complete:
        return (
            f"The matrices φφᵀ of the {kinds} kinds of pair that they tell apart ({pairs}) are "
            "linearly independent: every upload gives the exact number of visits to each of them, "
            "however long the round."
        )
    return (
        f"The matrices φφᵀ of {pairs} ({kinds} different ones) have rank {found.rank:,}: any "
        f"upload gives the number of visits of {found.solved:,} of them, and one of fewer than "
        f"about {plural(found.rank, 'episode')} usually that of all, because counts are whole "
        "numbers."
    )


def _early_ends(group: Group) -> str:
    """In a black box: late steps have fewer episodes than the round."""
    if group.first.regret is not None:
        return ""
    records = [record for run in group.runs for record in run.records]
    if any(record.fewest is None for record in records):
        return (
            " Episodes may have ended early here, and how many reached each step was not recorded: "
            "at late steps an upload may reveal as much as that of a single episode."
        )
    shortest = min(record.shortest for record in records)
    if min(record.smallest for record in records) == shortest:
        return ""
    return (
        " Episodes that have ended do not take part in later steps: there an upload sums over the "
        "longest episodes only, however long the round. The shortest round had "
        f"{plural(shortest, 'episode')}."
    )

"""What the smallest upload of a run gives away, in words."""

from __future__ import annotations

from fedlsvi.checks import plural
from fedlsvi.report import html
from fedlsvi.report.groups import Group


def privacy(group: Group) -> str:
    """The smallest upload, and what may be read from it."""
    ledgers = [run.ledger.scalars for run in group.runs]
    if any(ledger["up_raw"] for ledger in ledgers):
        most = max(ledger["up_raw"] for ledger in ledgers)
        return html.paragraph(
            f"Trajectories left the agents: {most:,} scalars of states, actions and rewards in a "
            "run. Nothing in this algorithm keeps them private."
        )
    if not any(ledger["up_stats"] for ledger in ledgers):
        return html.paragraph("Nothing was uploaded: no agent told another anything.")
    sizes = [r.smallest for run in group.runs for r in run.records]
    least, total = min(sizes), len(sizes)
    return html.paragraph(
        f"No trajectory left an agent. The smallest upload summed up {plural(least, 'episode')} "
        f"({sizes.count(least):,} of {plural(total, 'round')}"
        f"{'' if len(group.runs) == 1 else ', all seeds'}): with one episode a Gram matrix shows "
        "the feature vector up to its sign, and the more episodes are in it, the less it says "
        f"about each.{_early_ends(group)}"
    )


def _early_ends(group: Group) -> str:
    """In a black box: that late steps have fewer episodes than the round."""
    if group.first.regret is not None:
        return ""
    records = [record for run in group.runs for record in run.records]
    if any(record.fewest is None for record in records):
        return (
            " Episodes may have ended early here, and how many reached each step was not recorded: "
            "an upload may say as much about the late steps as a single episode would."
        )
    shortest = min(record.shortest for record in records)
    if min(record.smallest for record in records) == shortest:
        return ""
    return (
        " Ended episodes take no part in the steps that follow, so that at late steps an upload is "
        "a sum over those that went furthest, however long the round; the shortest had "
        f"{plural(shortest, 'episode')}."
    )

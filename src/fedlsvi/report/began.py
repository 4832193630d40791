"""What a run knew before its first episode, as its report and the shell say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlsvi.checks import plural


def warm(counts: Mapping[str, int], parameters: Mapping[str, Any]) -> list[str]:
    """A sentence on logs and one on an earlier model, as far as the run began with them.

    Args:
        counts: `Run.counts`; empty at the server of a federation, which does not see logs.
        parameters: The numbers in force.
    """
    found = []
    if parameters["logged"]:
        if "logged_agents" in counts:
            text = (
                f"{plural(counts['logged_episodes'], 'logged episode')} of "
                f"{counts['logged_agents']:,} of {plural(parameters['n_agents'], 'agent')} were "
                "used in a separate round before the first episode"
            )
            if counts["logged_only"]:
                text += f"; {plural(counts['logged_only'], 'agent')} had only a log, played "
                text += "nothing and answered from the log"
            if counts["left_out"]:
                text += f"; {plural(counts['left_out'], 'row')} without a target were left out"
        else:
            text = (
                f"sites learned from up to {plural(parameters['logged'], 'logged episode')} of "
                "each agent in a separate round before the first episode"
            )
        found.append(text)
    if parameters["prior"]:
        found.append(
            "the model of an earlier run served as the prior; each of its episodes counts "
            f"{parameters['prior']:g} times one of this run"
        )
    return found

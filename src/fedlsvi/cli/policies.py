"""`fedlsvi evaluate` and `fedlsvi record`: a learned policy in a Gymnasium environment."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlsvi.cli.text import as_json
from fedlsvi.envs.gym_play import evaluate_policy, record
from fedlsvi.errors import InvalidInput
from fedlsvi.policy import Policy


def do_evaluate(arguments: argparse.Namespace) -> int:
    """Play whole episodes; print the mean return and its interval."""
    policy = _policy(arguments.policy)
    found = evaluate_policy(policy, arguments.env, arguments.episodes, arguments.seed)
    low, high = found.interval
    if arguments.format == "json":
        print(as_json({"mean": found.mean, "low": low, "high": high,
                       "episodes": len(found.returns)}))  # fmt: skip
    else:
        print(f"mean return {found}")
    return 0


def do_record(arguments: argparse.Namespace) -> int:
    """Play one episode into a file."""
    earned = record(_policy(arguments.policy), arguments.env, arguments.out, arguments.seed)
    found = {"file": arguments.out, "return": earned}
    text = f"wrote {arguments.out}: one episode, return {earned:g}"
    print(as_json(found) if arguments.format == "json" else text)
    return 0


def _policy(folder: str) -> Policy:
    """A folder that `policy.save` wrote, or a run folder."""
    path = Path(folder)
    if (path / "policy.json").exists():
        return Policy.load(path)
    if (path / "settings.toml").exists():
        from fedlsvi.store import load

        return load(path).policy
    raise InvalidInput(
        f"{folder} holds neither a policy nor a run: give a folder of `policy.save` or of `run`"
    )

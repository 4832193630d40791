"""Studies by mail in temporary folders: kits and logs of sites, their files, and the merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.envs import RandomLinearMDP, RandomMDP
from fedlsvi.logs.recording import record_episodes
from fedlsvi.remote.mail.letter import Sealed
from fedlsvi.remote.mail.merge import merge
from fedlsvi.remote.mail.site import MailSite
from fedlsvi.remote.mail.site_key import SiteKeyPair
from fedlsvi.remote.mail.study import Study
from fedlsvi.run import Run

NAMES = ("east", "north", "south")
H, S, A, T = 3, 4, 3, 30


def logs(env: Any = None, episodes: int = T) -> dict[str, dict[str, np.ndarray]]:
    """A log of each site; sites have different numbers of episodes."""
    env = RandomMDP(n_states=S, n_actions=A, horizon=H, seed=1) if env is None else env
    return {
        name: record_episodes(env, episodes - 5 * m, seed=m, agent=m, ends=(1,))
        for m, name in enumerate(NAMES)
    }


def dense() -> tuple[Any, dict[str, Any]]:
    """A problem whose features are a table, and how a study names them."""
    env = RandomLinearMDP(n_states=S, n_actions=A, dim=4, horizon=H, seed=2)
    return env, {"name": "table", "table": env.phi.tolist()}


def kits(folder: Path, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    """A kit with a key for each site; their public keys."""
    return {name: SiteKeyPair(folder / name, make=True).fingerprint for name in names}


def study_of(folder: Path, **changes: Any) -> Study:
    """The study of these sites."""
    settings = {"aggregation": "exact", "beta": 0.1, "lam": 0.5} | changes.pop("settings", {})
    table: dict[str, Any] = {
        "name": "ward", "horizon": H, "episodes": T, "actions": A, "n_states": S,
        "sites": kits(folder), "settings": settings,
    }  # fmt: skip
    return Study.of(table | changes)


def contributions(study: Study, folder: Path, data: dict[str, Any], **how: Any) -> list[Path]:
    """The files of all sites, after a round of keys where the study needs one."""
    sites = {name: MailSite(study, folder / name) for name in study.names}
    sealed = []
    if study.secure:
        for name, site in sites.items():
            path = folder / f"{name}.keys"
            path.write_bytes(site.keys())
            sealed.append(Sealed.read(path, study))
    paths = []
    for name, site in sites.items():
        paths.append(folder / f"{name}.contribution")
        records = site.read(data[name], **how)
        paths[-1].write_bytes(site.contribute(records, site.roster(sealed)))
    return paths


def merged(study: Study, folder: Path, data: dict[str, Any], **how: Any) -> Run:
    """The run that the files of all sites make."""
    paths = contributions(study, folder, data, **how)
    return merge(study, paths, folder / "run", print)

"""All files of a study, merged into a run folder: the guard, the server and the head of any run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedlsvi.checks import plural
from fedlsvi.envs.base import units
from fedlsvi.envs.spaces import Spaces, numbered
from fedlsvi.errors import InvalidInput
from fedlsvi.policy import Policy
from fedlsvi.privacy.masks import membership_id
from fedlsvi.remote.audit import in_logs
from fedlsvi.remote.federation import serve
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.mail import POLICY, STUDY, UPLOADS
from fedlsvi.remote.mail.letter import CONTRIBUTION, Letter, Sealed, of_all_sites
from fedlsvi.remote.mail.site import roster_of
from fedlsvi.remote.mail.study import Study
from fedlsvi.remote.mail.transport import MailTransport
from fedlsvi.run import Run
from fedlsvi.storage import files
from fedlsvi.storage.run_header import header_files_at_sites
from fedlsvi.storage.runs import OpenedRun


def merge(
    study: Study, paths: Sequence[str | Path], folder: str | Path, notify: Callable[[str], None]
) -> Run:
    """Merge the files of all sites.

    Args:
        study: The study.
        paths: The contributions.
        folder: The run folder, which is made; or one in which these were merged before.
        notify: Called with a sentence if something is odd.

    Raises:
        InvalidInput: A file is missing, there twice, or of another study.
        DamagedFile: One was altered.
        WrongVersion: One was written by another version.
        MessageRefused: One holds what no honest site could send.
    """
    sealed = [Sealed.read(path, study) for path in paths]
    letters = of_all_sites(study, sealed, CONTRIBUTION)
    check_membership(study, letters)
    p, where = study.parameters, Path(folder)
    contents = header_files_at_sites(
        p, study.federation.settings, study.seed, study.features, units(study.reward_range),
        study.cuts, in_logs(study.run), "pevi",
    )  # fmt: skip
    opened = OpenedRun.of_sites(where, contents, notify)
    transport = MailTransport(study, letters)
    try:
        run = serve(opened, transport, [], study.values())
    except Refusal as refused:
        site = "all sites together"
        if 0 <= refused.agent < len(study.names) and not study.secure:
            site = f"site {study.names[refused.agent]}"
        raise InvalidInput(f"{site}: {refused}", code=refused.code) from None
    study.write(where / STUDY)
    files.make_private(files.inside(where, UPLOADS))
    for one in sealed:
        name = f"{one.letter.site}.{CONTRIBUTION}"
        files.write(files.inside(where, UPLOADS, name), files.read(one.path))
    policy = policy_of(study, run)
    if policy is not None:
        policy.save(where / POLICY)
    return run


def policy_of(study: Study, run: Run) -> Policy | None:
    """The policy that a study has learned, where states are finite; elsewhere features need the
    site's own environment."""
    p = study.parameters
    values = study.values()
    if values is None:
        return None
    for h in range(p.horizon, 0, -1):
        values.update(h, run.w[h - 1], run.gram_packed[h - 1])
    spaces = Spaces(numbered(study.states), study.n_actions, n_states=study.states)
    return Policy(lambda: (values, spaces), p.horizon, {"name": None, "params": {}})


def check_membership(study: Study, letters: Sequence[Letter]) -> None:
    """All sites masked their sums for the same keys, or these would not cancel."""
    if not study.secure:
        return
    expected = membership_id(study.run, roster_of(study, letters).members).hex()
    others = [letter.site for letter in letters if letter.membership != expected]
    if others:
        raise InvalidInput(
            f"{plural(len(others), 'site')} masked sums for other keys than those in these files: "
            f"{', '.join(others)}. Give every site the .keys files of all sites, and let each "
            "contribute again",
            code="other-membership",
        )

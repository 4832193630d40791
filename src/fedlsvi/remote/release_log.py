"""Which sums of a site have left: each is answered once, whoever asks again.

    releases.log   for every upload: run, agents, round, step, what was asked, what it held

A stage is a round and a step of one run of these agents. It has one answer: the same request for
the same data gives the same bytes again, after any restart, and everything else is refused. Another
V for the same data would be another question about them, another content behind the same mask or
noise would reveal the difference. That holds for a server that begins again at episode 0, too,
because the agents of a run play the same episodes again. And it holds whatever number the server
gives the site's agents: the same records under another number would have other noise.

A record is on disk before its upload leaves, and none is ever removed. What it holds are hashes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from fedlsvi.errors import MessageRefused
from fedlsvi.storage import files

RELEASES = "releases.log"
RECORD = struct.Struct("<QqqQI32s32s")  # run, first, agents, round, step, asked, content

Stage = tuple[int, int]
"""Round and step; step 0 is all of them at once."""

Release = tuple[tuple[int, int, int], Stage, bytes, bytes]
"""(run, first agent, agents), stage, what was asked, what it held."""


class ReleaseLog:
    """The uploads of one run of some agents that have left.

    Args:
        run: The run's number.
        agents: The site's first agent, and how many it has.
        folder: Where the file is; None keeps everything in memory.
        durable: Whether a release is known after a power failure too.
        elsewhere: Folders of other names of federations under which this run may have been
            answered: its agents play the same episodes, whatever the federation is called.

    Raises:
        MessageRefused: The run was answered for agents with other numbers.
    """

    def __init__(
        self, run: int, agents: tuple[int, int], folder: Path | None = None, durable: bool = True,
        elsewhere: Sequence[Path] = (),
    ) -> None:  # fmt: skip
        self.run, self.agents, self.folder, self.durable = run, agents, folder, durable
        self._known: dict[Stage, tuple[bytes, bytes]] = {}
        self._elsewhere = {
            stage: (hashes[0], hashes[1])
            for other in elsewhere
            for whose, stage, *hashes in releases(other)
            if whose == (run, *agents)
        }
        if folder is not None:
            for (other, *numbers), stage, *hashes in releases(folder):
                if other != run:
                    continue
                if tuple(numbers) != agents:
                    raise MessageRefused(
                        f"this site has answered as agents from {numbers[0]} on, and now it would "
                        f"be those from {agents[0]} on: give the federation another seed",
                        code="answered-before",
                    )
                self._known.setdefault(stage, (hashes[0], hashes[1]))

    def __len__(self) -> int:
        return len(self._known)

    @property
    def rounds(self) -> set[int]:
        """Of which something has left."""
        return {round_ for round_, _ in self._known}

    def use(self, round_: int, step: int, asked: bytes, content: bytes) -> None:
        """Write down what is about to leave.

        Args:
            round_, step: The stage.
            asked: (32,) hash of everything that the site was asked.
            content: (32,) hash of the sums.

        Raises:
            MessageRefused: This stage was answered, and something else was asked or would be sent.
        """
        known = self._known.get((round_, step), self._elsewhere.get((round_, step)))
        if known == (asked, content) and (round_, step) in self._known:
            return
        if known is None or known == (asked, content):
            if self.folder is not None:
                record = RECORD.pack(self.run, *self.agents, round_, step, asked, content)
                append_record(files.inside(self.folder, RELEASES), record, self.durable)
            self._known[round_, step] = asked, content
        else:
            what = "the requests before it" if known[0] != asked else "the data"
            stage = f"round {round_}" + (f", step {step}," if step else "")
            raise MessageRefused(
                f"{stage} was answered before, and {what} were different then. A second answer "
                "would reveal more than one sum, so nothing is sent. The server is repeating the "
                "round with another model or end, or the environment does not replay its episodes: "
                "give the federation another seed",
                code="answered-before",
            )


def releases(folder: Path) -> list[Release]:
    """Every upload that a site has sent. A record that a kill left unfinished is cut off: nothing
    was sent behind it."""
    path = files.inside(folder, RELEASES)
    data = files.read(path) if files.exists(path) else b""
    whole = len(data) - len(data) % RECORD.size
    if whole < len(data):
        files.cut(path, whole)
    return records(data)


def records(data: bytes) -> list[Release]:
    """The uploads in such a file, without an unfinished record at its end."""
    rows = RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size])
    return [((run, first, m), (k, h), asked, held) for run, first, m, k, h, asked, held in rows]


def append_record(path: Path, record: bytes, durable: bool) -> None:
    """Write a record at the end of a file."""
    try:
        fd = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            files.write_all(fd, record)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise files.cannot("write", path, error) from error

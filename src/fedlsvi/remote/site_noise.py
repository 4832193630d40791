"""A site's noise in a private run: its secret, written down before it is used, and each noise once.

    noise-RUN.json   the site's secret of one run, from the operating system's entropy
    noise.log        for every round that was released, and step where steps are released one by
                     one: its number, and a hash of what noise hid

Both are in a folder beside the site's journal and never leave the site. A site that restarts has
the same secret, so it adds the same noise to the same sums: what it sends again are the bytes that
it sent. It never adds the noise of a round to a second content, whoever asks: the difference of the
two would be open, and the budget was for one. That holds for a server that begins again at episode
0, too. After the last round of the schedule nothing is sent.
"""

from __future__ import annotations

import re
import struct
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import DamagedFile, MessageRefused
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.messages import Increments, Upload
from fedlsvi.protocol.private_noise import (
    NoisyAgents,
    PartyNoise,
    honest_sites,
    new_noise_key,
    noise_of,
)
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.masking import append_record
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, suspect

RELEASED = "noise.log"
RECORD = struct.Struct("<QII32s")  # run, round, step (0 is all at once), SHA-256 of the content

Stage = tuple[int, int]
"""Round and step."""
_SHAPE: Shape = {"secret": re.compile("[0-9a-f]{64}")}


class SiteNoise:
    """The noise of one site.

    Args:
        parameters: The numbers that were agreed on, of a private run.
        run: The run's number.
        agents: The site's first agent, and how many it has.
        folder: Where both files are; None keeps everything in memory.
        durable: Whether a release is known after a power failure too.
    """

    def __init__(
        self,
        parameters: Parameters,
        run: int,
        agents: tuple[int, int],
        folder: Path | None = None,
        durable: bool = True,
    ) -> None:
        assert parameters.release is not None
        assert parameters.privacy is not None
        self.parameters, self.run, self.agents = parameters, run, agents
        self.release, self.colluders = parameters.release, parameters.privacy["colluders"]
        self.folder, self.durable = folder, durable
        self._sums = FixedPointSums(layout(parameters), parameters.scale_bits)
        self._released = {} if folder is None else released(folder, run)
        self._key = self._secret()
        self._share: tuple[int, PartyNoise] | None = None
        self._agents: NoisyAgents | None = None

    def add(self, t: int, words: np.ndarray, sites: int, step: int = 0) -> np.ndarray:
        """This site's sums of the round that ended with episode t, with its share of the noise.

        Args:
            t: The last episode of the round.
            words: The sums of the site's agents, encoded.
            sites: How many sites share the noise.
            step: The step that they belong to; 0 is all steps at once.

        Raises:
            MessageRefused: No round ends there, or that noise has hidden something else.
        """
        k = self._use(t, step, words)
        if self._share is None or self._share[0] != sites:
            enough = honest_sites(sites, self.colluders)
            self._share = sites, noise_of(self.release, self._key, self.agents[0], enough)
        noisy: np.ndarray = words + self._share[1].words(k, max(1, step))
        return noisy

    def blur(self, t: int, reply: Increments | Upload) -> Increments | Upload:
        """What each agent sends of that round, with all the noise.

        Raises:
            MessageRefused: As for `add`.
        """
        k = self._use(t, step_of(reply), self._sums.words(reply))
        if self._agents is None:
            n_agents = self.parameters.n_agents
            self._agents = NoisyAgents(self._key, *self.agents, self.release, n_agents)
        return self._agents.blurred(k, reply)

    def _use(self, t: int, step: int, words: np.ndarray) -> int:
        """The round that ended with episode t, once it is written down what its noise hides."""
        k, content = self.parameters.trigger.number(t), sha256(words.data).digest()
        if k == 0:
            raise MessageRefused(
                f"no round of the public schedule ends after episode {t}, so nothing is sent",
                code="off-schedule",
            )
        known = self._released.get((k, step))
        if known is None:
            if self.folder is not None:
                record = RECORD.pack(self.run, k, step, content)
                append_record(files.inside(self.folder, RELEASED), record, self.durable)
            self._released[k, step] = content
        elif known != content:
            where = f"round {k}" + (f", step {step}," if step else "")
            raise MessageRefused(
                f"the noise of {where} was already used for other statistics, and using it twice "
                "would reveal their difference, so nothing is sent. The server is repeating this "
                "round with a different model, or another run has the same number",
                code="noise-used",
            )
        return k

    def _secret(self) -> bytes:
        """As it was before a restart, or a new one that is written down first."""
        if self.folder is None:
            return new_noise_key()
        path = files.inside(self.folder, f"noise-{self.run:016x}.json")
        if files.exists(path):
            table = files.read_json(path, _SHAPE)
            with suspect(path):
                return bytes.fromhex(table["secret"])
        if self._released:
            raise DamagedFile(
                f"{path} is missing, but {len(self._released)} uploads were released with its "
                "noise: restore it from a backup. New noise would spend the budget twice",
                code="noise-lost",
            )
        key = new_noise_key()
        files.write_json(path, {"secret": key.hex()})
        return key


def step_of(reply: Increments | Upload) -> int:
    """The step of an upload; 0 where it holds all of them."""
    return reply.h if isinstance(reply, Upload) else 0


def released(folder: Path, run: int) -> dict[Stage, bytes]:
    """Round and step → hash of what their noise hid, of one run. A record that a kill left
    unfinished is cut off: nothing was sent behind it."""
    path = files.inside(folder, RELEASED)
    data = files.read(path) if files.exists(path) else b""
    whole = len(data) - len(data) % RECORD.size
    if whole < len(data):
        files.cut(path, whole)
    found: dict[Stage, bytes] = {}
    for of, k, step, content in RECORD.iter_unpack(data[:whole]):
        if of == run:
            found.setdefault((k, step), content)
    return found

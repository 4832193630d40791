"""A site's own module: a world whose states are marked, and an ear at everything FLARE sends; and
the check that looks for the mark in what left.

`entry = "canary:make"` in a site's settings calls `make` in the process that holds its agents. It
listens where FLARE hands a whole message to its connections, after serialisation and before TLS.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import holding
from fedlsvi.envs.allowed import restrict
from fedlsvi.features.base import CallableFeatures, FeatureMap
from patience import PATIENCE
from problems import Drift, bumps, half

PATTERN = b"\xca\xfe\xba\xbe"
_DECIMAL = re.compile(rb"\d+\.\d{6,}(?:e[-+]?\d+)?")


class Marked(Drift):
    """Drift whose states have the pattern in their lowest four bytes."""

    def __init__(self, horizon: int, dim: int) -> None:
        super().__init__(horizon, 0.1)
        self._dim = dim

    def reset(self, u: np.ndarray, agents: np.ndarray) -> np.ndarray:
        return mark(super().reset(u, agents))

    def step(self, h: int, x: Any, a: Any, u: Any) -> Any:
        pay, following = super().step(h, x, a, u)
        return mark(pay), mark(following)

    def default_features(self) -> FeatureMap:
        return CallableFeatures(bumps(self.n_actions, self._dim), simplex=True).bind(self)


def mark(numbers: np.ndarray) -> np.ndarray:
    """Numbers with the pattern in the lowest four bytes, changed by less than a millionth."""
    words = np.ascontiguousarray(numbers).view("<u8") & np.uint64(0xFFFFFFFF00000000)
    return (words | np.uint64(int.from_bytes(PATTERN, "little"))).view("<f8")


def leaks(channels: Mapping[str, bytes]) -> dict[str, set[str]]:
    """Channels that have the pattern, and in which forms: a number's own bytes in either order,
    their hexadecimal digits, or its text with all digits. A rounded one is not known again."""
    found: dict[str, set[str]] = {}
    for channel, data in channels.items():
        forms, texts = {PATTERN, PATTERN[::-1]}, data.lower()
        numbers = (struct.pack("<d", float(text)) for text in _DECIMAL.findall(texts))
        seen = {
            "bytes": any(form in data for form in forms),
            "hex": any(form.hex().encode() in texts for form in forms),
            "decimal": any(number.startswith(PATTERN) for number in numbers),
        }
        if any(seen.values()):
            found[channel] = {form for form, there in seen.items() if there}
    return found


def contents(folder: Path) -> bytes:
    """All that the files of a folder hold."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def make(
    horizon: int, dim: int, overheard: str = "", answers: str = "", masked: bool = False,
    hold: str = "",
) -> Any:  # fmt: skip
    """The world; with `overheard`, all that FLARE sends from here is also written to that file.
    With `answers`, this site calls the others as the server would, and writes what they answer to
    that file. With `masked`, only what `half` allows is allowed. With `hold`, it obeys the orders
    in that folder (`holding`)."""
    if hold:
        holding.arm(Path(hold))
    if overheard:
        listen(Path(overheard))
    if answers:
        intrude(Path(answers))
    world = Marked(horizon, dim)
    return restrict(world, half) if masked else world


def intrude(path: Path) -> None:
    """Call every method of every other site, unsigned and signed with this site's key."""
    from nvflare.collab import collab

    from fedlsvi.remote.flare.signing import Signer

    try:
        kit = Path(collab.workspace.get_startup_kit_dir())
    except RuntimeError:  # no job: the site evaluates its policy
        return
    own = path.with_name("own-kit")
    own.mkdir(exist_ok=True)
    for kind in ("key", "crt"):
        (own / f"server.{kind}").write_bytes((kit / f"client.{kind}").read_bytes())
    signer = Signer(own, "trial", str(collab.fl_ctx.get_job_id()))
    for site in collab.other_clients:
        for method in ("hello", "join", "handle", "signalled_elsewhere", "ended"):
            for proof in (b"", signer.sign(method, site.name, b"")):
                try:
                    answer = repr(getattr(site(timeout=PATIENCE), method)(b"", proof))
                except Exception as error:
                    answer = str(error)
                with path.open("a") as file:
                    file.write(f"{site.name} {method}: {' '.join(answer.split())}\n")


def listen(path: Path) -> None:
    """Every class of connection that FLARE has loaded, and those it uses between our parties."""
    from nvflare.fuel.f3.connection import Connection
    from nvflare.fuel.f3.drivers import aio_http_driver, socket_conn  # noqa: F401

    for kind in Connection.__subclasses__():
        if not hasattr(kind, "heard"):
            kind.heard, kind.send_frame = True, _hearing(kind.send_frame, path)


def _hearing(send: Any, path: Path) -> Any:
    def send_frame(self: Any, frame: Any) -> None:
        with path.open("ab") as file:
            file.write(bytes(frame))
        send(self, frame)

    return send_frame

"""The cost of signing a request relative to an exchange over FLARE (bound: 5 %).

Three sites on loopback play a short run. An exchange is the time that the server waits for the
answers to one request; signing is one signature for each site, verifying is what a site does. Once
for each job the RSA key of the server's kit vouches for the key that signs.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from fedlsvi.experiments.measure import Row
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import ENV, free_port
from fedlsvi.remote.flare.signing import Signer, Verifier

SITES = ("site-1", "site-2", "site-3")
FEDERATION = Federation("bench", episodes=300, horizon=5, dim=8, settings={"gamma": 50.0})
REPEATS = 200
FRAME = bytes(48 + 8 * (8 + 36))
"""As long as the frame of a model with d = 8."""


def exchange(folder: Path) -> float:
    """Seconds of an exchange: the time of a synchronisation over its H + 1 requests."""
    project.launch(folder)
    try:
        number = project.start(folder)
        assert project.wait(folder, number, 600.0) == project.COMPLETED
        rows = (project.server_folder(folder) / "records.jsonl").read_text().splitlines()
    finally:
        project.stop(folder)
        project.clean(folder)
    spent = [json.loads(row)["seconds"]["synchronise"] for row in rows]
    return median(spent) / (FEDERATION.horizon + 1)


def signatures(folder: Path) -> tuple[float, float]:
    """Seconds to sign a frame, and to verify one, with keys that FLARE made."""
    kits = folder / "kits"
    signer = Signer(kits / "localhost" / "startup", "bench", "job")
    verifier = Verifier(kits / SITES[0] / "startup", "bench", "job", SITES[0])
    signing, verifying = [], []
    for _ in range(REPEATS):
        began = perf_counter()
        proof = signer.sign("handle", SITES[0], FRAME)
        signed = perf_counter()
        verifier.check("handle", FRAME, proof)
        signing.append(signed - began)
        verifying.append(perf_counter() - signed)
    return median(signing), median(verifying)


def main() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="fedlsvi-") as scratch:
        sites = {site: {"agents": 1, "env": ENV} for site in SITES}
        folder = project.init(Path(scratch) / "project", FEDERATION, sites, port=free_port())
        sign, verify = signatures(folder)
        whole = exchange(folder)
    cost = len(SITES) * sign + verify
    return [
        Row("exchange over FLARE, 3 sites", 1e3 * whole, "ms"),
        Row("sign a request for each, verify one", 1e3 * cost, "ms"),
        Row("of an exchange", 100 * cost / whole, "%", "below 5", cost < 0.05 * whole),
    ]

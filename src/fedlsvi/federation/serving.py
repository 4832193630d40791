"""The server's side of a federation whose agents are elsewhere: no environment, no regret.

records.jsonl    one line per round
checkpoints/     the server after its last rounds, sealed; agents keep theirs first
model.safetensors, ledger.json   when the run has ended
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from threadpoolctl import threadpool_limits

from fedlsvi.config import Parameters
from fedlsvi.ledger import Ledger
from fedlsvi.records import LISTED, RoundRecord
from fedlsvi.server import Round, Server
from fedlsvi.store import checkpoint, files
from fedlsvi.store.checkpoint import CHECKPOINTS, RECORDS, Manifest
from fedlsvi.transports.wired import Wired


def serve(
    p: Parameters,
    transport: Wired,
    folder: str | Path,
    observe: Callable[[RoundRecord], None] | None = None,
) -> Server:
    """Play to the end, from the last checkpoint where there is one. BLAS keeps to one thread."""
    with threadpool_limits(limits=1, user_api="blas"):
        return _serve(p, transport, Path(folder), observe)


def _serve(
    p: Parameters,
    transport: Wired,
    run: Path,
    observe: Callable[[RoundRecord], None] | None,
) -> Server:
    (run / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    server = Server(transport.layout, p.lam, p.gamma, p.beta, p.episodes)
    found = checkpoint.newest(run, transport.notes.append)
    kept: list[Manifest] = []
    if found is not None:
        manifest, arrays = found
        plain = manifest.plain
        server.w[:], server.gram[:] = arrays["w"], arrays["gram"]
        server.t, server.k = plain["t"], plain["k"]
        transport.last = plain["last"]
        transport.restore(arrays, plain["transport"], server.t, server.k)
        transport.ledger = Ledger.from_dict(plain["ledger"])
        kept.append(manifest)
    records = files.AppendOnly(run / RECORDS, kept[0].appended[RECORDS] if kept else None)
    if server.t < server.T:
        server.start(transport)
    while server.t < server.T:
        began = perf_counter()
        done = server.round(transport)
        record = _record(done, transport, perf_counter() - began)
        records.append(json.dumps(record.to_dict()).encode() + b"\n")
        own, plain = transport.state(server.t)
        plain = {"t": server.t, "k": server.k, "last": transport.last,
                 "ledger": transport.ledger.to_dict(), "transport": plain}  # fmt: skip
        arrays = {"w": server.w, "gram": server.gram, **own}
        number = kept[-1].number + 1 if kept else 1
        stamps = {RECORDS: records.sync()}
        kept.append(checkpoint.save(run, number, arrays, plain, stamps, []))
        kept = kept[-checkpoint.KEPT :]
        checkpoint.prune(run, kept)
        if observe is not None:
            observe(record)
    records.close()
    files.write_arrays(run / "model.safetensors", {"w": server.w, "gram": server.gram})
    files.write_json(run / "ledger.json", transport.ledger.to_dict())
    return server


def _record(done: Round, transport: Wired, seconds: float) -> RoundRecord:
    signal, explored = done.signal, transport.explored
    named = zip(signal.agents[:LISTED].tolist(), signal.steps[:LISTED].tolist(), strict=True)
    return RoundRecord(
        k=done.k,
        first=done.first,
        last=signal.t,
        signals=len(signal.agents),
        triggers=list(named),
        logdet=done.logdet.tolist(),
        scalars=transport.ledger.scalars,
        regret=None,
        overshoot=transport.kept,
        seconds={"explore": explored, "synchronise": seconds - explored, "evaluate": 0.0},
        notes=transport.told(),
    )

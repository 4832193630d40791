"""The server's side of a federation whose agents are elsewhere: no environment, no regret.

records.jsonl    one line per round
epoch.json       where the server that began last counts its messages from
checkpoints/     the server after its last rounds, sealed; agents keep theirs first
model.safetensors, ledger.json   when the run has ended
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from threadpoolctl import threadpool_limits

from fedlsvi.config import Parameters
from fedlsvi.errors import DamagedFile, InvalidSetting, WrongVersion
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.records import LISTED, RoundRecord
from fedlsvi.protocol.server import Round, Server
from fedlsvi.remote.audit import in_logs
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.storage import checkpoint, files
from fedlsvi.storage.checkpoint import CHECKPOINTS, RECORDS, Manifest

EPOCH = "epoch.json"
APART = 2**30
"""How far the epochs of two servers are apart at least; one uses some up in its calls to sites that
are away. As epochs are nanoseconds, the clock is further on unless it was set back."""


def serve(
    p: Parameters,
    transport: FrameTransport,
    folder: str | Path,
    observe: Callable[[RoundRecord], None] | None = None,
    agreed: Mapping[str, Any] | None = None,
) -> Server:
    """Play to the end, from the last checkpoint where there is one. BLAS keeps to one thread.
    `agreed` is what the sites' worlds have in common, in plain values."""
    with threadpool_limits(limits=1, user_api="blas"):
        played = _played(p, transport.cuts, transport.run, agreed)
        return _serve(p, transport, Path(folder), observe, played)


def _serve(
    p: Parameters,
    transport: FrameTransport,
    run: Path,
    observe: Callable[[RoundRecord], None] | None,
    played: Mapping[str, Any],
) -> Server:
    for part in (run, run / CHECKPOINTS):  # each site's share can be told from the others' there
        files.make_private(part)
    server = Server(transport.layout, p.lam, p.gamma, p.beta, p.episodes)
    found = checkpoint.newest(run, transport.membership.notes.add)
    kept: list[Manifest] = []
    if found is not None:
        manifest, arrays = found
        plain = manifest.plain
        _refuse_another(run, plain, played)
        server.w[:], server.gram[:] = arrays["w"], arrays["gram"]
        server.t, server.k = plain["t"], plain["k"]
        transport.last = plain["last"]
        transport.restore(arrays, plain["transport"], server.t, server.k)
        transport.ledger = Ledger.from_dict(plain["ledger"])
        kept.append(manifest)
    records = files.AppendOnly(run / RECORDS, kept[0].appended[RECORDS] if kept else None)
    if server.t < server.T:
        take_epoch(transport, run)
        server.start(transport)
    while server.t < server.T:
        began = perf_counter()
        done = server.round(transport)
        record = _record(done, transport, perf_counter() - began)
        records.append(json.dumps(record.to_dict()).encode() + b"\n")
        own, plain = transport.state(server.t)
        plain = {"t": server.t, "k": server.k, "last": transport.last, "played": played,
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
    ledger = transport.ledger.to_dict() | {"run": in_logs(transport.run)}
    files.write_json(run / "ledger.json", ledger)
    return server


def take_epoch(transport: FrameTransport, folder: Path) -> None:
    """Speak later than every server before this one, whether or not it lived to write a checkpoint,
    and write the epoch down before it is used."""
    path = folder / EPOCH
    with suppress(DamagedFile):  # there is none; or the clock and the checkpoint must do
        before = files.read_json(path).get("epoch")
        if isinstance(before, int) and 0 <= before < 2**63:
            transport.begin_at(before + APART)
    files.write_json(path, {"epoch": transport.epoch})


def check(
    p: Parameters, cuts: Sequence[tuple[int, int]], run: int, folder: str | Path,
    agreed: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Refuse to go on, before any site is asked to, where the folder holds another run."""
    found = checkpoint.newest(Path(folder), lambda note: None)
    if found is not None:
        _refuse_another(Path(folder), found[0].plain, _played(p, cuts, run, agreed))


def _played(
    p: Parameters, cuts: Sequence[tuple[int, int]], run: int, agreed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What makes a run the one that it is, in the words of JSON."""
    made = {"parameters": asdict(p), "cuts": cuts, "run": run, **(agreed or {})}
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def _refuse_another(run: Path, plain: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A checkpoint is continued by the run that wrote it and by no other."""
    if "played" not in plain:
        raise WrongVersion(
            f"the checkpoints in {run} are of an earlier fedlsvi: finish the run with that, or "
            "give the federation another name"
        )
    before = {**now, **plain["played"]}  # an earlier fedlsvi wrote less down
    if before == now:
        return
    old, new = before["parameters"], now["parameters"]
    changed = [f"{key} {old[key]!r} and not {new[key]!r}" for key in old if old[key] != new[key]]
    if before["cuts"] != now["cuts"]:
        sizes = [[agents for _, agents in each["cuts"]] for each in (before, now)]
        changed.append(f"agents {sizes[0]} at its sites and not {sizes[1]}")
    for key in now:
        if key not in ("parameters", "cuts", "run") and before[key] != now[key]:
            changed.append(f"{key} {before[key]} and not {now[key]}")
    raise InvalidSetting(
        f"{run} holds a run that was begun with {', '.join(changed) or 'another seed'}: "
        "set that back, or give the federation another name"
    )


def _record(done: Round, transport: FrameTransport, seconds: float) -> RoundRecord:
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

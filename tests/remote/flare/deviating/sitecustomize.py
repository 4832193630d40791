"""Python imports this in every process of a server that deviates: it asks the first site for a
longer round than all others."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

LONGER = 40
"""Episodes."""


class Deviation(MetaPathFinder):
    """Changes how requests are written, once they are about to be."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name != "fedlsvi.remote.flare.transport":
            return
        sys.meta_path.remove(self)
        from fedlsvi.protocol.messages import Stop
        from fedlsvi.remote import frame_transport

        encode_all = frame_transport.encode_all

        def deviating(request: Any, addresses: Any) -> Any:
            frames = encode_all(request, addresses)
            if isinstance(request, Stop):
                frames[0] = encode_all(Stop(request.t + LONGER), addresses)[0]
            return frames

        frame_transport.encode_all = deviating  # type: ignore[assignment]


sys.meta_path.insert(0, Deviation())

"""How tests say which error they expect: by its class and code, never by its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedlsvi.errors import FedLSVIError


@contextmanager
def refused(
    kind: type[FedLSVIError], code: str, *fragments: str
) -> Iterator[pytest.ExceptionInfo[FedLSVIError]]:
    """The block raises this error; its message names these values (a path, a number, a name)."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code!r}: {caught.value}"
    for fragment in fragments:
        assert fragment in str(caught.value)

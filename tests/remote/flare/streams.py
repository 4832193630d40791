"""Answers as NVIDIA FLARE receives them, without a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Timer, enumerate
from types import SimpleNamespace
from typing import Any

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import StreamDataType, StreamHeaderKey

_NUMBERS = count(1)
_CELL: Any = SimpleNamespace(fire_and_forget=lambda *given, **options: {})


def arrives(content: bytes, kind: str = StreamDataType.FINAL, number: int = 0) -> int:
    """A site's answer arrives in one piece, or of kind CHUNK its first piece; returns its number.
    With the number of one that has arrived, the piece is sent again."""
    number = number or next(_NUMBERS)
    message = Message(
        {
            MessageHeaderKey.ORIGIN: "site-1.job",
            StreamHeaderKey.STREAM_ID: number,
            StreamHeaderKey.CHANNEL: "return_only",
            StreamHeaderKey.TOPIC: "collab:call",
            StreamHeaderKey.SEQUENCE: 0,
            StreamHeaderKey.SIZE: len(content),
            StreamHeaderKey.DATA_TYPE: kind,
            StreamHeaderKey.RELIABLE: True,
        },
        content,
    )
    stream = RxTask.find_or_create_task(message, _CELL)
    assert stream is not None
    stream.process_chunk(message)
    return number


def kept() -> list[int]:
    """The numbers of the answers that FLARE keeps."""
    return [number for _, number in RxTask.rx_task_map]


def sleepers() -> list[Timer]:
    """The threads that wait to remove an answer, or to do anything else later."""
    return [
        thread
        for thread in enumerate()
        if isinstance(thread, Timer) and not thread.finished.is_set()
    ]


@contextmanager
def all_removed() -> Iterator[None]:
    """Whatever is kept at the end goes, with its thread."""
    try:
        yield
    finally:
        for stream in list(RxTask.rx_task_map.values()):
            stream._remove_task()

"""What a Gymnasium environment draws, and the files that it is written into."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.envs.gym.ids import needing
from fedlsvi.errors import InvalidInput

ANSI, RGB = "ansi", "rgb_array"

WRITERS: dict[str, tuple[str, str] | None] = {
    ".txt": None,
    ".gif": ("PIL.Image", "Pillow (pip install 'fedlsvi[plot]')"),
    ".mp4": ("imageio_ffmpeg", "imageio-ffmpeg (pip install 'fedlsvi[video]')"),
}
"""Ending of a recording → the module that writes it and how to get it, where one is needed."""


def frame(name: str, env: Any, mode: str) -> Any:
    """What the environment draws, a text or uint8 (height, width, 3); a sentence where it draws
    something else, or lacks a package to draw with."""
    with needing(name):
        drawn = env.render()
    if mode == ANSI and isinstance(drawn, str):
        return drawn
    if mode == RGB and _is_picture(drawn):
        return np.ascontiguousarray(drawn[:, :, :3], np.uint8)
    made = getattr(env, "render_mode", None)
    why = "" if made == mode else f", and was made with render_mode={made!r}"
    raise InvalidInput(
        f"{name} drew {_seen(drawn)}{why}: let it take render_mode='{mode}' and draw "
        f"{'a text' if mode == ANSI else 'an array of integers (height, width, 3)'}"
    )


def _is_picture(drawn: Any) -> bool:
    """Integers (height, width, 3); a fourth layer is opacity."""
    whole = isinstance(drawn, np.ndarray) and drawn.dtype.kind in "iu"
    return whole and drawn.ndim == 3 and drawn.shape[2] in (3, 4)


def _seen(drawn: Any) -> str:
    """A drawing in a word or two."""
    if isinstance(drawn, np.ndarray):
        return f"an array {drawn.shape} of {drawn.dtype}"
    return "nothing" if drawn is None else f"a {type(drawn).__name__}"


def writer_of(suffix: str) -> Any:
    """The module that writes such a file; a sentence where it is not installed."""
    needed = WRITERS[suffix]
    if needed is None:
        return None
    try:
        return import_module(needed[0])
    except ImportError:
        raise InvalidInput(
            f"{suffix} needs {needed[1]}: install it, or let the file end in .txt"
        ) from None


def write(target: Path, frames: list[Any], rate: int, total: float, writer: Any) -> None:
    """The frames in a file, `rate` of them a second; a text closes with the return."""
    if target.suffix == ".txt":
        parts = [f"step {h}\n{drawn}" for h, drawn in enumerate(frames)]
        target.write_text("\n".join([*parts, f"return {total:g}\n"]))
    elif target.suffix == ".gif":
        images = [writer.fromarray(drawn) for drawn in frames]
        images[0].save(target, save_all=True, append_images=images[1:], duration=1000 // rate)
    else:
        height, width = frames[0].shape[:2]
        film = writer.write_frames(str(target), (width, height), fps=rate, macro_block_size=2)
        film.send(None)  # it opens the file
        for drawn in frames:
            film.send(drawn)
        film.close()

"""The engine's attach protocol as a sans-IO state machine.

Each frame is an 8-byte head (stream number, three zero bytes, big-endian length) and a payload.
Pieces come out as they come in: a frame of many MB is never gathered, so memory stays flat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

HEAD_SIZE = 8

Stream = Literal[1, 2]
STDOUT: Stream = 1
STDERR: Stream = 2


class FrameError(Exception):
    """The bytes are not the attach protocol's (a terminal was attached, or bytes were lost)."""


@dataclass
class Demultiplexer:
    """Feed it bytes in any split; it gives the pieces of each stream in order."""

    _head: bytearray = field(default_factory=bytearray)
    _stream: Stream = STDOUT
    _left: int = 0

    def feed(self, data: bytes) -> Iterator[tuple[Stream, bytes]]:
        view = memoryview(data)
        while view:
            if self._left == 0:
                wanted = HEAD_SIZE - len(self._head)
                self._head += view[:wanted]
                view = view[wanted:]
                if len(self._head) == HEAD_SIZE:
                    self._open(bytes(self._head))
                    self._head.clear()
                continue
            piece = bytes(view[: self._left])
            view = view[len(piece) :]
            self._left -= len(piece)
            yield self._stream, piece

    def _open(self, head: bytes) -> None:
        if head[0] == STDOUT:
            self._stream = STDOUT
        elif head[0] == STDERR:
            self._stream = STDERR
        else:
            raise FrameError(f"frame head {head.hex()} names no output stream")
        if head[1:4] != b"\0\0\0":
            raise FrameError(f"frame head {head.hex()} is not the attach protocol's")
        self._left = int.from_bytes(head[4:], "big")

    @property
    def between_frames(self) -> bool:
        """False where the connection ended inside a frame: bytes were lost."""
        return self._left == 0 and not self._head

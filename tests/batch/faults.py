"""Kills this process at the Nth call that makes something durable or asks something of the engine.

The calls themselves are the real ones: each is counted as it is reached, and the process that
reaches the chosen one is killed by SIGKILL before it is made, or, of a write, in its middle. Only
calls below the watched directories count, and every call of an ``Engine``.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recorder.engine.client import Engine

BY_DESCRIPTOR = ("fsync", "fdatasync", "ftruncate")
BY_PATH = ("rename", "replace", "mkdir", "unlink", "rmdir", "remove", "link", "symlink")
OF_THE_ENGINE = tuple(
    name for name, value in vars(Engine).items() if callable(value) and not name.startswith("_")
)


class Boundaries:
    """The calls that were reached, in order. ``kill_at`` counts from 1; 0 kills nowhere."""

    def __init__(self, watched: Sequence[Path], kill_at: int = 0) -> None:
        self.reached: list[str] = []
        self._watched = tuple(f"{os.path.realpath(directory)}/" for directory in watched)
        self._kill_at = kill_at
        self._counting = threading.Lock()

    def reach(self, name: str) -> None:
        """Count a boundary; the process ends here where it is the chosen one."""
        with self._counting:
            self.reached.append(name)
            if len(self.reached) == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def names(self, path: str) -> str | None:
        """A path as a boundary names it, without what differs from run to run; None elsewhere."""
        for directory in self._watched:
            if f"{path}/".startswith(directory):
                name = path.removeprefix(directory)
                return ".part" if name.endswith(".part") else name or "."
        return None

    def install(self) -> None:
        """Put the layer over the calls of this process, which is not to be used for more."""
        for name in BY_DESCRIPTOR:
            setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        for name in BY_PATH:
            setattr(os, name, self._by_path(name, getattr(os, name)))
        os.pwrite = self._in_the_middle(os.pwrite)
        for name in OF_THE_ENGINE:
            setattr(Engine, name, self._of_the_engine(name, getattr(Engine, name)))

    def _by_descriptor(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(descriptor: int, *rest: Any) -> Any:
            where = self.names(os.readlink(f"/proc/self/fd/{descriptor}"))
            if where is not None:
                self.reach(f"{name} {where}")
            return call(descriptor, *rest)

        return counted

    def _by_path(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(path: Any, *rest: Any, **named: Any) -> Any:
            # A path beside a directory's descriptor is one of a tree that is being removed.
            where = None if named.get("dir_fd") is not None else self.names(_absolute(path))
            if where is not None:
                self.reach(f"{name} {where}")
            return call(path, *rest, **named)

        return counted

    def _in_the_middle(self, call: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(call)
        def counted(descriptor: int, data: Any, offset: int) -> int:
            where = self.names(os.readlink(f"/proc/self/fd/{descriptor}"))
            if where is None:
                return call(descriptor, data, offset)
            self.reach(f"pwrite {where}")
            half = len(data) // 2
            written = call(descriptor, data[:half], offset)
            self.reach(f"pwrite {where}, torn")
            return written + call(descriptor, data[written:], offset + written)

        return counted

    def _of_the_engine(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*given: Any, **named: Any) -> Any:
            self.reach(f"engine {name}")
            return call(*given, **named)

        return counted


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))

"""What a session produced: the log's write calls, what the driver names, what changed. A union.

A path inside the workspace is relative to it, whoever named it and in whatever form, so that
one file is one entry.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from recorder.stream.observation import WRITE_TOOLS, Observation


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file as it is after the session.

    ``sha256`` is ``sha256:<hex>``, or ``""`` where no regular file is there. ``findings`` is
    absent where no check read the file.
    """

    path: str
    sha256: str
    cites: tuple[str, ...]
    findings: tuple[str, ...] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Places:
    """Where a session's paths lie.

    ``workspaces``: the names the workspace has, the session's own first, all absolute.
    ``private``: directories whose files are the harness's and not produced (auto-memory).
    """

    workspaces: tuple[str, ...]
    private: tuple[str, ...] = ()

    def place(self, path: str) -> str:
        """The path relative to the workspace, or absolute and normalised where it is outside."""
        if not path.startswith("/"):
            if not self.workspaces:
                return posixpath.normpath(path)
            path = posixpath.join(self.workspaces[0], path)
        normal = "/" + posixpath.normpath(path).lstrip("/")
        for workspace in self.workspaces:
            relative = _below(normal, workspace)
            if relative is not None:
                return relative
        return normal

    def is_private(self, path: str) -> bool:
        """Whether a placed path lies in a directory that is the harness's own."""
        return path.startswith("/") and any(_below(path, root) is not None for root in self.private)


def written_paths(observation: Observation) -> tuple[str, ...]:
    """The paths of the write calls as the calls named them, each once, in stream order."""
    return tuple(
        dict.fromkeys(
            call.path for call in observation.calls if call.tool in WRITE_TOOLS and call.path
        )
    )


def places_of(
    observation: Observation,
    workspaces: Iterable[str] = (),
    configuration_directories: Iterable[str] = (),
) -> Places:
    """The places of a session: what the caller names, then what the init lines state."""
    inits = observation.inits
    stated = [init.cwd for init in inits if init.cwd and init.cwd.startswith("/")]
    memory = [path for init in inits for path in init.memory_paths if path.startswith("/")]
    return Places(
        workspaces=tuple(dict.fromkeys([*workspaces, *stated])),
        private=tuple(dict.fromkeys([*configuration_directories, *memory])),
    )


def produced_paths(
    observation: Observation,
    places: Places,
    named: Iterable[str] = (),
    changed: Iterable[str] = (),
) -> tuple[str, ...]:
    """Every produced path once, placed: the log's first, then ``named``, then ``changed``.

    ``changed`` is what differs from the arm's manifest, its exclusions already taken out.
    """
    placed = (places.place(path) for path in (*written_paths(observation), *named, *changed))
    return tuple(dict.fromkeys(p for p in placed if p != "." and not places.is_private(p)))


def _below(path: str, directory: str) -> str | None:
    root = "/" + posixpath.normpath(directory).lstrip("/")
    if path == root:
        return "."
    prefix = root if root == "/" else root + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None

"""What a session changed: the archive of its workspace against the manifest of its arm."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from recorder.workspace.archive import ArchiveReading, Left
from recorder.workspace.manifest import Entry, Manifest


@dataclass(frozen=True)
class Changes:
    """The difference, every path once and sorted.

    ``added`` and ``changed`` are regular files by digest: what the session produced beside
    what its log names. A file that was only touched is unchanged. One whose bytes stand and
    whose permissions moved is in ``mode_changed`` and is not produced: an artifact is
    identified by its bytes. ``removed`` is None where the archive was not read to its end,
    because a file it did not reach is not a file that is gone. ``excluded``, ``left`` and
    ``not_read`` say why a path is not among the first two.
    """

    added: tuple[Entry, ...]
    changed: tuple[Entry, ...]
    mode_changed: tuple[Entry, ...]
    removed: tuple[bytes, ...] | None
    excluded: tuple[Left, ...]
    left: tuple[Left, ...]
    not_read: tuple[Left, ...]
    stopped: str | None

    @property
    def whole(self) -> bool:
        """Whether every regular file of the workspace was read."""
        return self.stopped is None and not self.not_read

    @property
    def produced(self) -> tuple[Entry, ...]:
        """``added`` and ``changed`` together, sorted by path."""
        return tuple(sorted(self.added + self.changed))


def compare(before: Manifest, after: ArchiveReading) -> Changes:
    """Compare by digest, never by time. A new or changed link is left, never followed."""
    excluded = {item.path for item in after.excluded}
    added: list[Entry] = []
    changed: list[Entry] = []
    mode_changed: list[Entry] = []
    left = list(after.left)
    for entry in after.entries:
        known = before.by_path.get(entry.path)
        same_bytes = (
            known is not None and known.is_link == entry.is_link and known.sha256 == entry.sha256
        )
        if entry.is_link:
            if not same_bytes:
                left.append(Left(entry.path, "a symbolic link, which is never followed"))
        elif same_bytes:
            if known is not None and stat.S_IMODE(known.mode) != stat.S_IMODE(entry.mode):
                mode_changed.append(entry)
        elif entry.path in excluded:
            continue
        elif known is None or known.is_link:
            added.append(entry)
        else:
            changed.append(entry)
    return Changes(
        added=tuple(added),
        changed=tuple(changed),
        mode_changed=tuple(mode_changed),
        removed=None if after.stopped is not None else _removed(before, after),
        excluded=after.excluded,
        left=tuple(sorted(left)),
        not_read=after.not_read,
        stopped=after.stopped,
    )


def _removed(before: Manifest, after: ArchiveReading) -> tuple[bytes, ...]:
    there = {item.path for item in after.left} | {item.path for item in after.not_read}
    there.update(after.by_path)
    return tuple(entry.path for entry in before.entries if entry.path not in there)

"""What a session changed and yet did not produce: generated files, caches, logs.

An exclusion is never silent: the comparison lists what it excluded and why, because a session
can write the marker as well as a generator can.
"""

from __future__ import annotations

import re

from recorder.workspace.names import inside

HEAD_BYTES = 64 * 1024
"""How much of a file's start decides; the marker beyond it does not count."""

_MARKER = b"headwater:generated"
_JSON_MEMBER = re.compile(rb'^[\s{]*"headwater:generated"\s*:', re.MULTILINE)
_WORKTREE = re.compile(rb"\.claude/worktrees/[^/]+/")
_PRUNED = b".headwater"


def exclusion(path: bytes, head: bytes, *, log_directory: bytes | None = None) -> str | None:
    """Why a changed file is not produced, or None where it is.

    ``path`` is relative to the workspace, ``head`` the first ``HEAD_BYTES`` of the file (less
    where it is shorter), ``log_directory`` the session's log directory where it lies inside.
    """
    if log_directory is not None and inside(path, log_directory):
        return "in the session's log directory"
    worktree = _WORKTREE.match(path)
    own = path[worktree.end() :] if worktree else path
    if inside(own, _PRUNED):
        return "under .headwater"
    if _is_generated(path, head):
        return "carries the generated marker"
    return None


def is_produced(path: bytes, head: bytes, *, log_directory: bytes | None = None) -> bool:
    """Whether a changed file counts as produced by the session."""
    return exclusion(path, head, log_directory=log_directory) is None


def _is_generated(path: bytes, head: bytes) -> bool:
    if path.lower().endswith(b".json"):
        return _JSON_MEMBER.search(head) is not None
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    if not lines:
        return False
    if lines[0].rstrip() != b"---":
        return _MARKER in lines[0]
    for line in lines[1:]:
        if line.rstrip() == b"---":
            return False
        if _MARKER in line:
            return True
    return False

"""Paths that no call may change, whatever the declarations say. Pure.

A protected path is matched by whole parts, at any depth of another path, as it is written and as
it resolves. A tool that edits is judged by the file it is seen to change. A shell line is judged
by the writes it is seen to make; where it only mentions a protected path it may read it, with
commands that are known to read, and nothing else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recorder.disciplines.edits import EDIT_TOOLS, edited_path
from recorder.disciplines.history import SHELL_TOOL
from recorder.disciplines.judging import Break
from recorder.disciplines.relations import Violator
from recorder.disciplines.shell import only_reads, shell_evidence
from recorder.disciplines.verdicts import Surface, Verdict

LABEL = "protected-paths"

# What no path part holds, so that a mention ends there.
_NOT_A_PATH = re.compile(r"[\s\"'`=:;,(){}\[\]<>|&$*?!\\]+")


def protects(protected: Iterable[str], path: str) -> str | None:
    """The first protected path that a path lies on or under, at any depth."""
    forms = {path, posixpath.normpath(path)}
    for each in protected:
        wanted = _parts(posixpath.normpath(each))
        if any(_holds(_parts(form), wanted) for form in forms):
            return each
    return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _holds(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    size = len(wanted)
    return size > 0 and any(
        list(parts[start : start + size]) == list(wanted) for start in range(len(parts) - size + 1)
    )


def mentions(protected: Sequence[str], value: Any) -> str | None:
    """The first protected path that any text within a JSON value names."""
    for text in _texts(value):
        for word in _NOT_A_PATH.split(text):
            found = protects(protected, word) if word else None
            if found is not None:
                return found
    return None


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            waiting += [*each.values(), *each.keys()]
        elif isinstance(each, (list, tuple)):
            waiting += each


def touched(protected: Sequence[str], tool: str, arguments: Mapping[str, Any]) -> str | None:
    """The protected path that a call would change, or may change; None where it cannot."""
    if not protected:
        return None
    if tool in EDIT_TOOLS:
        named = edited_path(tool, arguments)
        return mentions(protected, arguments) if named is None else protects(protected, named)
    command = arguments.get("command")
    if tool != SHELL_TOOL or not isinstance(command, str):
        return None
    evidence = shell_evidence(command)
    seen = [write.path for write in evidence.writes]
    seen += [unknown.path for unknown in evidence.unknown if unknown.path is not None]
    for path in seen:
        found = protects(protected, path)
        if found is not None:
            return found
    found = mentions(protected, command)
    return None if found is None or only_reads(command) else found


def protection_verdict(
    protected: Sequence[str], tool: str, arguments: Mapping[str, Any]
) -> Verdict | None:
    """The verdict over a call: blocked, or none at all."""
    found = touched(protected, tool, arguments)
    return None if found is None else _blocked(found, "blocked")


def change_verdict(
    protected: Sequence[str], paths: Iterable[str], surface: Surface
) -> Verdict | None:
    """The verdict over a change set; a surface that was set to advise advises."""
    for path in paths:
        found = protects(protected, path)
        if found is not None:
            return _blocked(found, "advised" if surface.level == "advise" else "blocked")
    return None


def _blocked(path: str, event: Any) -> Verdict:
    breaks = (Break("protected", (Violator("0", path),), f"{path} is protected"),)
    return Verdict(LABEL, event, path, breaks)

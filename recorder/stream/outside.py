"""Paths outside the workspace that a session named: a session cannot be seen being refused.

Counted: absolute paths in the arguments that name a document, and the shell words of Bash
commands, redirect targets too. Not counted: ``/`` alone, paths relative to the workspace, and
what the session's image binds (``BOUND``). ``/tmp`` is counted, because a checkout of the host
could have been named there. A word that only looks like a path (``sed /x/d``) counts as well:
nothing is expanded and no command is understood.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from recorder.stream.observation import Observation, ObservedCall

# Of the image itself, the same in every session and of no host.
BOUND = (
    "/usr",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/dev",
    "/sys",
)

_HEREDOC = re.compile(r"<<(?P<tabs>-?)[ \t]*(?P<quote>['\"]?)(?P<word>[A-Za-z_][\w.-]*)(?P=quote)")
_PREFIXED = re.compile(r"-{0,2}[A-Za-z_][\w-]*=(?=/)")
_EXPANDED = re.compile(r"[*?$`\[{]")
_SEPARATORS = " \t\r\n;&|()<>`"


def outside_paths(
    observation: Observation, workspace: str, bound: tuple[str, ...] = BOUND
) -> tuple[str, ...] | None:
    """The paths, normalised, each once, in the order they were first named.

    ``workspace`` is the session's own path of it. None where the stream was not read whole:
    then they are said to be not counted, never 0.
    """
    if not observation.whole:
        return None
    own = (workspace, *bound)
    named = (path for call in observation.calls for path in _named(call))
    return tuple(
        dict.fromkeys(path for path in named if not any(_inside(path, root) for root in own))
    )


def shell_words(command: str) -> Iterator[str]:
    """The words of a shell command with their quotes removed, redirect targets among them.

    Bodies of here-documents are text and give no word. Nothing is expanded.
    """
    text = _without_heredocs(command)
    word: list[str] = []
    inside = False
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        position += 1
        if quote == "'" or (quote and character not in '"\\'):
            if character == quote:
                quote = ""
            else:
                word.append(character)
        elif character == '"' or (character == "'" and not quote):
            quote = "" if quote else character
            inside = True
        elif character == "\\":
            position += 1
            if following == "\n":
                continue
            inside = True
            word.append(character + following if quote and following not in '"\\$`' else following)
        elif character == "#" and not inside:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif character in _SEPARATORS:
            if inside:
                yield "".join(word)
            word, inside = [], False
        else:
            word.append(character)
            inside = True
    if inside:
        yield "".join(word)


def _without_heredocs(command: str) -> str:
    if "<<" not in command:
        return command
    kept: list[str] = []
    waiting: list[tuple[str, bool]] = []
    for line in command.split("\n"):
        if waiting:
            end, tabs = waiting[0]
            if (line.lstrip("\t") if tabs else line) == end:
                waiting.pop(0)
            continue
        kept.append(line)
        waiting = [(m["word"], bool(m["tabs"])) for m in _HEREDOC.finditer(line)]
    return "\n".join(kept)


def _named(call: ObservedCall) -> Iterator[str]:
    if call.path is not None:
        yield from _absolute(call.path)
    elif call.tool == "Bash":
        for word in shell_words(_member(call.argument, "command")):
            prefix = _PREFIXED.match(word)
            yield from _absolute(_unexpanded(word[prefix.end() :] if prefix else word))
    elif call.tool == "Glob":
        yield from _absolute(_unexpanded(_member(call.argument, "pattern")))


def _member(argument: str, name: str) -> str:
    try:
        read: Any = msgspec.json.decode(argument)
    except msgspec.DecodeError:
        return ""
    value = read.get(name) if isinstance(read, dict) else None
    return value if isinstance(value, str) else ""


def _unexpanded(word: str) -> str:
    """The directory above what the shell would expand."""
    expanded = _EXPANDED.search(word)
    return word[: word.rfind("/", 0, expanded.start()) + 1] if expanded else word


def _absolute(path: str) -> Iterator[str]:
    if path.startswith("/"):
        normal = "/" + posixpath.normpath(path).lstrip("/")
        if normal != "/":
            yield normal


def _inside(path: str, directory: str) -> bool:
    root = posixpath.normpath(directory)
    return path == root or path.startswith(root.rstrip("/") + "/")

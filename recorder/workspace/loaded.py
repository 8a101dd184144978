"""The text that a harness puts before every session, read from the files of a workspace.

Standing instructions with what they import, rules, and of skills, agents and commands what is
listed of each: its name, its description and when to use it. The body of a skill is read only
when the skill is used, so it is not among them; an output style is, whole, since settings that a
workspace may hold choose one of them for every session. No file is read through a link that leaves
the workspace, and a file that is reached twice is read once, under its first name.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH112, PTH113, PTH114, PTH115, PTH118

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from recorder.plan import nodes
from recorder.plan.nodes import NodeError
from recorder.plan.probes import front_matter
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.manifest import read_blocks, walk
from recorder.workspace.names import path_text

IMPORT_DEPTH = 5
"""How far an import of an import is followed from the file that the harness reads itself."""

SESSION_PATH = b"/workspace"
"""Where a session finds its workspace: a link to there stays inside."""

LINK_LIMIT = 40
LISTED = ("name", "description", "when_to_use", "when-to-use")
INSTRUCTIONS = (b"CLAUDE.md", b".claude/CLAUDE.md", b"CLAUDE.local.md", b"AGENTS.md")

_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:[^\s\\]|\\ )+)")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A piece of text that every session starts with, under the name it is reported by."""

    name: str
    text: str


def loaded_text(workspace: Path) -> tuple[Loaded, ...]:
    """What the files of a workspace put before every session.

    Refuses (9) a file that cannot be read: what it holds is not known.
    """
    files = _Files(workspace)
    found = [*files.instructions(INSTRUCTIONS, b".claude/rules"), *files.listed(b".claude/")]
    return tuple(found)


def loaded_configuration(directory: Path) -> tuple[Loaded, ...]:
    """The same of a configuration directory, each name behind ``config:``."""
    files = _Files(directory)
    found = [*files.instructions((b"CLAUDE.md", b"AGENTS.md"), b"rules"), *files.listed(b"")]
    return tuple(Loaded(f"config:{loaded.name}", loaded.text) for loaded in found)


class _Files:
    """The files of one tree, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._seen: set[bytes] = set()

    def instructions(self, names: tuple[bytes, ...], rules: bytes) -> Iterator[Loaded]:
        """Whole files, then what they import, the nearest first: a file that one import reaches
        late and another early is followed from where it is reached early."""
        reached = [*names, *(path for path in self._below(rules) if path.endswith(b".md"))]
        for depth in range(IMPORT_DEPTH + 1):
            imported: list[bytes] = []
            for name in reached:
                content = self._once(name)
                if content is None:
                    continue
                text = content.decode("utf-8", "replace")
                yield Loaded(path_text(name), text)
                if depth < IMPORT_DEPTH:
                    imported += self._imports(name, text)
            reached = imported

    def _imports(self, name: bytes, text: str) -> Iterator[bytes]:
        """The paths that a file can mean by its imports: beside its name, or where a link of that
        name leads."""
        folders = dict.fromkeys(map(os.path.dirname, (name, self._real(name) or name)))
        for written in imports_of(text):
            for target in _targets(written):
                for folder in folders:
                    yield os.path.normpath(os.path.join(folder, target)).lstrip(b"/")

    def listed(self, prefix: bytes) -> Iterator[Loaded]:
        """What is listed of each skill, agent and command, and every output style."""
        for path in self._below(prefix + b"skills"):
            if path.endswith(b"/SKILL.md"):
                yield from self._entry(path, path.split(b"/")[-2], body=True)
        for path in self._below(prefix + b"agents"):
            if path.endswith(b".md"):
                yield from self._entry(path, _stem(path), body=False)
        for path in self._below(prefix + b"commands"):
            if path.endswith(b".md"):
                yield from self._entry(path, _stem(path), body=True)
        for path in self._below(prefix + b"output-styles"):
            content = self._once(path) if path.endswith(b".md") else None
            if content is not None:
                text = f"{path_text(_stem(path))}\n{content.decode('utf-8', 'replace')}"
                yield Loaded(path_text(path), text)

    def _entry(self, path: bytes, own_name: bytes, *, body: bool) -> Iterator[Loaded]:
        content = self._once(path)
        if content is not None:
            text = f"{path_text(own_name)}\n{listed_of(content, body=body)}"
            yield Loaded(path_text(path), text)

    def _below(self, folder: bytes) -> Iterator[bytes]:
        """The paths of everything below a folder, through links that stay in the tree."""
        pending, seen = [folder], set()
        while pending:
            folder = pending.pop(0)
            real = self._real(folder)
            if real is None or real in seen or not os.path.isdir(os.path.join(self._root, real)):
                continue
            seen.add(real)
            try:
                found = list(walk(Path(os.fsdecode(os.path.join(self._root, real)))))
            except Refusal as refused:
                raise Refusal(ExitCode.NAMED, *refused.reasons) from refused
            for item in found:
                path = folder + b"/" + item.path
                if stat.S_ISLNK(item.status.st_mode):
                    pending.append(path)
                yield path

    def _once(self, path: bytes) -> bytes | None:
        """The bytes of a file of the tree, None where there is none or it was read before."""
        real = self._real(path)
        if real is None or real in self._seen:
            return None
        full = os.path.join(self._root, real)
        if not os.path.isfile(full):
            return None
        self._seen.add(real)
        try:
            return b"".join(read_blocks(full))
        except Refusal as refused:
            raise Refusal(ExitCode.NAMED, *refused.reasons) from refused

    def _real(self, path: bytes) -> bytes | None:
        """A path of the tree with every link followed; None where one leaves the tree."""
        parts = path.split(b"/")
        done: list[bytes] = []
        links = 0
        while parts:
            part = parts.pop(0)
            if part in (b"", b"."):
                continue
            if part == b"..":
                if not done:
                    return None
                done.pop()
                continue
            full = os.path.join(self._root, *done, part)
            if not os.path.islink(full):
                done.append(part)
                continue
            links += 1
            target = os.readlink(full)
            if target.startswith(b"/"):
                if not (target + b"/").startswith(SESSION_PATH + b"/"):
                    return None
                done, target = [], target[len(SESSION_PATH) :]
            if links > LINK_LIMIT:
                return None
            parts = target.split(b"/") + parts
        return b"/".join(done)


def _stem(path: bytes) -> bytes:
    return path.rpartition(b"/")[2].removesuffix(b".md")


def imports_of(text: str) -> tuple[str, ...]:
    """The paths that a file imports: words behind ``@`` outside of code, and not below a home."""
    found = _IMPORT.findall(_CODE_SPAN.sub(" ", _without_fences(text)))
    return tuple(word.replace("\\ ", " ") for word in found if not word.startswith("~"))


def _without_fences(text: str) -> str:
    kept: list[str] = []
    fence: str | None = None
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence is None and mark:
            fence = mark.group(1)
        elif fence is None:
            kept.append(line)
        elif mark and mark.group(1).startswith(fence):
            fence = None
    return "\n".join(kept)


def _targets(written: str) -> tuple[bytes, ...]:
    """The paths that a written import can mean, relative to the file that holds it."""
    path = written.partition("#")[0]
    found = dict.fromkeys((path, path.rstrip(".,;:!?)]}'\"")))
    targets = []
    for target in map(os.fsencode, found):
        if target.startswith(SESSION_PATH + b"/"):
            # Absolute in a session: the tree's own root, whichever file holds it.
            targets.append(b"/" + target[len(SESSION_PATH) + 1 :])
        elif target and not target.startswith(b"/") and b"\0" not in target:
            targets.append(target)
    return tuple(targets)


def listed_of(content: bytes, *, body: bool) -> str:
    """What is listed of a skill, an agent or a command, a value a line.

    Without a description the first line of the ``body`` stands for it. Front matter that is no
    YAML is taken whole: what a harness makes of it is not known.
    """
    block = front_matter(content)
    values = {} if block is None else _values(block)
    if values is None:
        values = {"description": (block or b"").decode("utf-8", "replace")}
    found = list(values.values())
    if body and not values.get("description", "").strip():
        found.append(_first_line(content, block))
    return "\n".join(found)


def _values(block: bytes) -> dict[str, str] | None:
    """The listed values of a front matter; None where it is no mapping of YAML."""
    try:
        root = nodes.compose(block.decode("utf-8"))
    except (NodeError, UnicodeDecodeError):
        return None
    if root is None:
        return {}
    if not isinstance(root, MappingNode):
        return None
    found: dict[str, str] = {}
    for key, value in root.value:
        name = key.value if isinstance(key, ScalarNode) else None
        if name in LISTED:
            found[name] = f"{found.get(name, '')}\n{_every_scalar(value)}"
    return found


def _every_scalar(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return str(node.value)
    if isinstance(node, MappingNode):
        return "\n".join(f"{_every_scalar(k)}\n{_every_scalar(v)}" for k, v in node.value)
    return "\n".join(map(_every_scalar, node.value))


def _first_line(content: bytes, block: bytes | None) -> str:
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.splitlines()
    if block is not None:
        lines = lines[len(block.splitlines()) + 2 :]
    line = next((line for line in lines if line.strip()), "")
    return line.strip().lstrip("#").strip()

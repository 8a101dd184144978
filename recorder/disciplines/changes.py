"""Collects a repository's changes by git: staged, in the worktree, or over a range of commits.

Three collectors, one shape. A rename is a deletion and an addition; a binary side has no text; an
unborn branch is all added; a change of type keeps what was there before it.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.disciplines.judging import World
from recorder.disciplines.replay import side, state_of
from recorder.disciplines.values import ABSENT
from recorder.plain_file import read_plain
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.names import path_text

STAGED, WORKTREE = "staged", "worktree"
LINK, SUBMODULE = b"120000", b"160000"
FILTER = r"^filter\..*\.(clean|smudge|process|required)$"
NO_OBJECT = re.compile(rb"0+")
_RANGE = re.compile(r"(.+?)(\.\.\.?)([^.].*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Change:
    """One changed path. A side is its text, ABSENT where it is not there or has no text."""

    path: str
    kind: str
    pre: Any
    post: Any


@dataclass(frozen=True, slots=True)
class Collected:
    """A change set, and ``file``: the text of any other file as this change set sees the tree."""

    changes: tuple[Change, ...]
    file: Callable[[str], Any]

    def worlds(self) -> tuple[World, ...]:
        """One world for each change. A commit proves no actor and has no session."""
        changed = [change.path for change in self.changes]
        posts = {change.path: change.post for change in self.changes}

        def read(path: str) -> Any:
            return posts[path] if path in posts else self.file(path)

        return tuple(
            World(
                subject=change.path,
                path=change.path,
                pre=change.pre,
                post=change.post,
                changes=changed,
                file=read,
            )
            for change in self.changes
        )


class _Git:
    def __init__(self, root: Path) -> None:
        found = shutil.which("git")
        if found is None:
            raise Refusal(ExitCode.MISSING, "git: is not installed; install it to judge changes")
        self._git = found
        self.root = root
        self._environment = _settings(os.environ, [])
        listed = self.run("config", "--null", "--name-only", "--get-regexp", FILTER, allow=(0, 1))
        self._environment = _settings(os.environ, listed.split(b"\0")[:-1])
        self.root = Path(os.fsdecode(self.run("rev-parse", "--show-toplevel").rstrip(b"\n")))

    def run(self, *arguments: str, allow: Sequence[int] = (0,)) -> bytes:
        done = subprocess.run(
            [self._git, *arguments],
            cwd=self.root,
            env=self._environment,
            capture_output=True,
            check=False,
        )
        if done.returncode not in allow:
            said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
            raise Refusal(ExitCode.USAGE, f"{self.root}: git {arguments[0]}: {said}")
        return done.stdout

    def commit(self, name: str) -> str | None:
        """The commit that a name stands for, None where it stands for none."""
        found = self.run(
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{name}^{{commit}}",
            allow=(0, 1, 128),
        )
        return found.decode("ascii").strip() or None

    def head(self) -> str:
        """The commit that is checked out; the empty tree on an unborn branch."""
        empty = self.run("hash-object", "-t", "tree", os.devnull).decode("ascii").strip()
        return self.commit("HEAD") or empty

    def blob(self, name: str) -> Any:
        """The text of a blob by its object or by ``commit:path``; ABSENT where there is none."""
        done = subprocess.run(
            [self._git, "cat-file", "blob", name],
            cwd=self.root,
            env=self._environment,
            capture_output=True,
            check=False,
        )
        return side(state_of(done.stdout)) if done.returncode == 0 else ABSENT

    def on_disk(self, path: bytes) -> Any:
        """The text of a file in the worktree; a link has none, wherever it leads."""
        full = os.path.join(os.fsencode(self.root), path)
        try:
            return side(state_of(read_plain(Path(os.fsdecode(full)))))
        except OSError:
            return ABSENT


def _settings(environment: Mapping[str, str], filters: Sequence[bytes]) -> dict[bytes, bytes]:
    """An environment in which git runs nothing that a repository's own settings name.

    Those are a monitor, hooks, filters of its drivers, and whatever fetches an object that a
    partial clone left out. Filters are given by their settings' names: git knows no wildcard.
    """
    settings = [(b"core.fsmonitor", b"false"), (b"core.hooksPath", os.fsencode(os.devnull))]
    settings += [
        (name, b"false" if name.endswith(b".required") else b"") for name in dict.fromkeys(filters)
    ]
    given = environment.get("GIT_CONFIG_COUNT", "")
    first = int(given) if given.isdecimal() else 0
    return {
        **{os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        b"GIT_NO_LAZY_FETCH": b"1",
        b"GIT_ALLOW_PROTOCOL": b"none",
        b"GIT_OPTIONAL_LOCKS": b"0",
        b"GIT_CONFIG_COUNT": b"%d" % (first + len(settings)),
        **{b"GIT_CONFIG_KEY_%d" % n: name for n, (name, _) in enumerate(settings, first)},
        **{b"GIT_CONFIG_VALUE_%d" % n: value for n, (_, value) in enumerate(settings, first)},
    }


def collect(root: Path, what: str) -> Collected:
    """Collect ``staged``, ``worktree``, ``A..B`` or ``A...B``.

    Refusal 2 for anything else, outside a repository, and for a name that git cannot resolve.
    """
    if not root.is_dir():
        raise Refusal(ExitCode.USAGE, f"{root}: is no directory; name one inside a repository")
    git = _Git(root)
    if what == STAGED:
        listed = _listed(git, "--cached", git.head())
        return Collected(
            _sorted(_changes(git, listed, disk=False)), lambda path: git.blob(f":0:{path}")
        )
    if what == WORKTREE:
        return Collected(_sorted(_worktree(git)), lambda path: git.on_disk(os.fsencode(path)))
    base, head = _range(git, what)
    listed = _listed(git, base, head)
    return Collected(
        _sorted(_changes(git, listed, disk=False)), lambda path: git.blob(f"{head}:{path}")
    )


def _sorted(changes: Iterator[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: change.path))


def _range(git: _Git, what: str) -> tuple[str, str]:
    found = _RANGE.fullmatch(what)
    if found is None:
        raise Refusal(
            ExitCode.USAGE,
            f"--git {what}: is none of staged, worktree, BASE..HEAD and BASE...HEAD",
        )
    commits = []
    for name in (found[1], found[3]):
        commit = git.commit(name)
        if commit is None:
            raise Refusal(ExitCode.USAGE, f"--git {what}: {name} is no commit of {git.root}")
        commits.append(commit)
    base, head = commits
    if found[2] == "...":
        merged = git.run("merge-base", base, head, allow=(0, 1)).decode("ascii").split()
        if not merged:
            raise Refusal(
                ExitCode.USAGE, f"--git {what}: {found[1]} and {found[3]} have no merge base"
            )
        base = merged[0]
    return base, head


@dataclass(frozen=True, slots=True)
class _Listed:
    old_mode: bytes
    new_mode: bytes
    old: bytes
    new: bytes
    status: bytes
    path: bytes


def _listed(git: _Git, *arguments: str) -> list[_Listed]:
    """What ``git diff`` lists, with the objects of both sides."""
    raw = git.run(
        "diff",
        "--raw",
        "--no-renames",
        "--no-ext-diff",
        # Whether a submodule's own worktree differs is asked of a git under its own settings.
        "--ignore-submodules=dirty",
        "--no-abbrev",
        "--no-color",
        "--no-relative",
        "-z",
        *arguments,
        "--",
    )
    parts = raw.split(b"\0")
    found = []
    for head, path in zip(parts[0:-1:2], parts[1::2], strict=True):
        old_mode, new_mode, old, new, status = head.removeprefix(b":").split(b" ")
        found.append(_Listed(old_mode, new_mode, old, new, status[:1], path))
    return found


def _changes(git: _Git, listed: Sequence[_Listed], *, disk: bool) -> Iterator[Change]:
    for each in listed:
        pre = ABSENT if each.status == b"A" else _object(git, each.old_mode, each.old)
        if each.status == b"D":
            post = ABSENT
        elif disk:
            post = ABSENT if each.new_mode == SUBMODULE else git.on_disk(each.path)
        else:
            post = _object(git, each.new_mode, each.new)
        kind = {b"A": "added", b"D": "deleted"}.get(each.status, "modified")
        yield Change(path_text(each.path), kind, pre, post)


def _object(git: _Git, mode: bytes, name: bytes) -> Any:
    if mode == SUBMODULE or NO_OBJECT.fullmatch(name):
        return ABSENT
    text = git.blob(name.decode("ascii"))
    if text is ABSENT and git.run("cat-file", "-t", name.decode("ascii")) != b"blob\n":
        raise Refusal(ExitCode.USAGE, f"{git.root}: {name.decode('ascii')} is no blob")
    return text


def _worktree(git: _Git) -> Iterator[Change]:
    """What differs from HEAD, with what git does not track and does not ignore."""
    listed = _listed(git, git.head())
    known = {each.path for each in listed}
    found = list(_changes(git, listed, disk=True))
    for path in git.run("ls-files", "--deleted", "-z", "--").split(b"\0"):
        # Only the index held it, and it is gone from the disk.
        if path and path not in known:
            known.add(path)
            found.append(Change(path_text(path), "deleted", ABSENT, ABSENT))
    untracked = git.run("ls-files", "--others", "--exclude-standard", "-z", "--")
    found += [
        Change(path_text(path), "added", ABSENT, git.on_disk(path))
        for path in untracked.split(b"\0")
        if path and path not in known
    ]
    yield from found

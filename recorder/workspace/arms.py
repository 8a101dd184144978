"""The tree of an arm: the corpus less the instrument, less or plus what the arm declares.

Which paths an arm holds is a pure function of the names of the corpus; the copying is apart
from it, and what was laid is compared with what should be there.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH102, PTH115, PTH118, PTH123, PTH211

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recorder.plan.declaration import ADDING_ARMS, Declaration, Tier
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.contract import ARMS
from recorder.workspace.manifest import (
    Entry,
    Found,
    Manifest,
    digest_of,
    entry_of,
    manifest_of,
    read_blocks,
    walk,
)
from recorder.workspace.names import inside, path_text
from recorder.workspace.place import outside_home, require_outside_corpus

HISTORY = b".git"
SOURCES = (".headwater/arms", "tools/probe/arms")
"""Where the files that an arm adds lie in the corpus, each under the name of its arm."""


@dataclass(frozen=True, slots=True)
class ArmDelta:
    """How an arm differs from the present tree.

    ``declared`` is the delta in declared order; ``removed`` and ``added`` what of it the tree
    held, sorted bytewise. ``instrument`` was removed from every arm, and ``history`` are the
    ``.git`` paths that are never copied; neither is part of the delta.
    """

    tier: str
    arm: str
    declared: tuple[str, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    instrument: tuple[str, ...]
    history: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """``- path`` for each removed and ``+ path`` for each added, sorted bytewise."""
        return (*(f"- {path}" for path in self.removed), *(f"+ {path}" for path in self.added))

    def sentence(self) -> str:
        """The sentence of a transcript about the arm."""
        return arm_sentence(self.tier, self.arm, self.declared)


def arm_sentence(tier: str, arm: str, declared: Sequence[str]) -> str:
    """The sentence of a transcript about an arm; ``declared`` is its delta in declared order."""
    if arm == "present":
        return "The `present` arm is the present tree."
    if not declared:
        return f"The delta of the `{arm}` arm of the `{tier}` tier could not be read from evidence."
    named = ", ".join(f"`{path}`" for path in declared)
    if arm in ADDING_ARMS:
        return f"The `{arm}` arm is the present tree with {named} added."
    return f"The `{arm}` arm is the present tree less {named}."


def declared_delta(declaration: Declaration, tier: str, arm: str) -> tuple[Tier, tuple[str, ...]]:
    """The tier and the declared delta of an arm. Refuses (2) what the declaration lacks."""
    declared = declaration.tiers.get(tier)
    if declared is None:
        raise Refusal(
            ExitCode.USAGE,
            f"the declaration carries no `{tier}` tier; it carries {', '.join(declaration.tiers)}",
        )
    if arm not in ARMS:
        raise Refusal(ExitCode.USAGE, f"`{arm}` is no arm; the arms are {', '.join(ARMS)}")
    if arm == "present":
        return declared, ()
    delta = declared.delta(arm)
    if arm == "absent" and not delta:
        raise Refusal(ExitCode.USAGE, f"the `{tier}` tier declares no ablation")
    if arm not in declared.arms:
        raise Refusal(
            ExitCode.USAGE,
            f"the `{tier}` tier does not run the `{arm}` arm; it runs {', '.join(declared.arms)}",
        )
    return declared, delta


def is_history(path: bytes) -> bool:
    """Whether a path is a ``.git`` file or folder, or lies in one."""
    return HISTORY in path.split(b"/")


def held(paths: Iterable[bytes], folders: Sequence[str]) -> tuple[str, ...]:
    """The folders (or files) of a list that a tree of these paths holds, sorted bytewise."""
    there = set(paths)
    return tuple(sorted((name for name in folders if os.fsencode(name) in there), key=os.fsencode))


def is_under(path: bytes, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders or lies in one."""
    return any(inside(path, os.fsencode(folder)) for folder in folders)


def delta_of(paths: Sequence[bytes], declaration: Declaration, tier: str, arm: str) -> ArmDelta:
    """The delta of an arm over the names of a corpus; pure.

    Refuses (8) an arm that would equal the present tree, or that adds what is there.
    """
    _, declared = declared_delta(declaration, tier, arm)
    instrument = declaration.instrument
    present = [path for path in paths if not is_history(path) and not is_under(path, instrument)]
    there = held(present, declared)
    adds = arm in ADDING_ARMS
    if arm != "present" and not adds and not there:
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"the `{arm}` arm of the `{tier}` tier is no different from the present tree: "
            f"the corpus holds none of {', '.join(declared)}",
        )
    if adds and there:
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"the `{arm}` arm of the `{tier}` tier is no different from the present tree: "
            f"the corpus holds {', '.join(there)} already",
        )
    history = {path for path in paths if path.split(b"/")[-1] == HISTORY}
    return ArmDelta(
        tier=tier,
        arm=arm,
        declared=declared,
        removed=() if adds else there,
        added=tuple(sorted(declared, key=os.fsencode)) if adds else (),
        instrument=held((path for path in paths if not is_history(path)), instrument),
        history=tuple(sorted(path_text(path) for path in history)),
    )


def in_arm(path: bytes, declaration: Declaration, delta: ArmDelta) -> bool:
    """Whether an arm holds a path of the corpus; pure."""
    return not (
        is_history(path) or is_under(path, declaration.instrument) or is_under(path, delta.removed)
    )


def diff_arm(
    corpus: Path, declaration: Declaration, tier: str, arm: str, tree: Path | None = None
) -> ArmDelta:
    """How an arm would differ from the present tree; nothing is written.

    ``tree`` is a present tree that was laid before, None for the corpus less its instrument.
    Refuses (2) a wrong tier or arm and a tree that is not there, (8) a tree that still holds the
    instrument, and an arm that equals the present tree or cannot be laid.
    """
    declared_delta(declaration, tier, arm)
    present = corpus if tree is None else tree
    if not present.is_dir():
        raise Refusal(ExitCode.USAGE, f"{present}: is no directory; name a tree")
    paths = [item.path for item in walk(present, closed=frozenset({HISTORY}))]
    delta = delta_of(paths, declaration, tier, arm)
    if tree is not None and delta.instrument:
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"{tree}: still holds the instrument {', '.join(delta.instrument)}, so it is no "
            "present tree; lay one with `recorder arm`",
        )
    for path in delta.added:
        _source_of(corpus, arm, path)
    return delta


def lay_arm(
    corpus: Path,
    declaration: Declaration,
    tier: str,
    arm: str,
    out: Path,
    *,
    home: Path | None = None,
) -> ArmDelta:
    """Copy the tree of an arm to ``out``, which does not exist yet or is empty.

    Refuses (2) a wrong tier or arm and a directory in use, (6) one inside the corpus or under
    the home directory, (8) an arm that does not differ from the present tree by its delta.
    """
    require_outside_corpus(out, corpus, "arm")
    outside_home(out, "arm", home)
    declared_delta(declaration, tier, arm)
    if not corpus.is_dir():
        raise Refusal(ExitCode.USAGE, f"{corpus}: is no directory; --corpus names the tree")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refusal(ExitCode.USAGE, f"{out}: is not empty; an arm is laid into a new directory")
    found = list(walk(corpus, closed=frozenset({HISTORY})))
    delta = delta_of([item.path for item in found], declaration, tier, arm)
    out.mkdir(parents=True, exist_ok=True)
    entries = [_copy(corpus, item, out) for item in found if in_arm(item.path, declaration, delta)]
    entries += [_add(corpus, delta.arm, path, out) for path in delta.added]
    expected = Manifest(tuple(entry for entry in entries if entry is not None))
    _require_exact(expected, manifest_of(out), delta)
    return delta


def _copy(corpus: Path, found: Found, out: Path) -> Entry | None:
    """Copy one thing as what it is, and say what was copied; None for a folder."""
    target = os.path.join(os.fsencode(out), found.path)
    mode = found.status.st_mode
    if stat.S_ISDIR(mode):
        os.mkdir(target, (mode & 0o777) | 0o700)
        return None
    if stat.S_ISLNK(mode):
        text = os.readlink(os.path.join(os.fsencode(corpus), found.path))
        os.symlink(text, target)
        return Entry(found.path, stat.S_IFLNK | 0o777, len(text), digest_of(text))
    if not stat.S_ISREG(mode):
        return entry_of(corpus, found)
    return _copy_file(
        os.path.join(os.fsencode(corpus), found.path), target, found.path, mode & 0o777
    )


def _copy_file(source: bytes, target: bytes, path: bytes, mode: int) -> Entry:
    hashed, size = hashlib.sha256(), 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(target, flags, 0o600)
    with open(descriptor, "wb") as file:
        for block in read_blocks(source):
            hashed.update(block)
            size += len(block)
            file.write(block)
        os.fchmod(descriptor, mode)
    return Entry(path, stat.S_IFREG | mode, size, "sha256:" + hashed.hexdigest())


def _source_of(corpus: Path, arm: str, path: str) -> Path:
    """The corpus' own copy of what an arm adds. Refuses (8) an arm without it."""
    for folder in SOURCES:
        source = corpus / folder / arm / path
        if source.is_file() and not source.is_symlink():
            return source
    raise Refusal(
        ExitCode.INSTRUMENT,
        f"the `{arm}` arm adds {path}, and the corpus holds no copy of it in "
        f"{' or '.join(f'{folder}/{arm}' for folder in SOURCES)}",
    )


def _add(corpus: Path, arm: str, path: str, out: Path) -> Entry:
    """Put in what an arm adds, byte for byte from the corpus' own copy."""
    source = _source_of(corpus, arm, path)
    target = out / path
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = source.stat().st_mode & 0o777
    return _copy_file(os.fsencode(source), os.fsencode(target), os.fsencode(path), mode)


def _require_exact(expected: Manifest, laid: Manifest, delta: ArmDelta) -> None:
    """Refuse (8) a tree that is not the present tree and its delta, entry for entry."""
    differing = set(expected.entries) ^ set(laid.entries)
    if differing:
        named = ", ".join(sorted({path_text(entry.path) for entry in differing})[:5])
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"the `{delta.arm}` arm of the `{delta.tier}` tier differs from the present tree by "
            f"more than its delta: {named}; lay it again and leave it alone meanwhile",
        )

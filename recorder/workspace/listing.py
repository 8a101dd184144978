"""What a declaration removes, keeps and hides, a line each, as a corpus stands now."""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from pathlib import Path

from recorder.plan.declaration import Declaration
from recorder.workspace.arms import is_under
from recorder.workspace.names import path_text
from recorder.workspace.naming import Subject
from recorder.workspace.seal import secrets_of


def instrument_lines(declaration: Declaration) -> tuple[str, ...]:
    """The paths that every arm loses, as declared."""
    return declaration.instrument


def fold_lines(corpus: Path, declaration: Declaration) -> tuple[str, ...]:
    """The declared folds that the corpus holds: a path that is not there hides nothing."""
    root = os.fsencode(corpus)
    return tuple(
        fold for fold in declaration.folds if os.path.lexists(os.path.join(root, os.fsencode(fold)))
    )


def key_lines(corpus: Path, declaration: Declaration, probe: str) -> tuple[str, ...]:
    """``identifier path`` of each answer key of a probe, its file's name where it has no
    identifier. Refuses (2) a probe the corpus does not hold, (8) a key it does not."""
    return tuple(
        f"{subject.title} {path_text(subject.path)}"
        for subject in secrets_of(corpus, declaration, [probe]).documents
        if _is_key(subject, declaration, probe)
    )


def named_lines(corpus: Path, declaration: Declaration, probe: str) -> tuple[str, ...]:
    """The names of each document that names a probe: its identifier, and the name of its file."""
    lines: list[str] = []
    for subject in secrets_of(corpus, declaration, [probe]).documents:
        if not _is_key(subject, declaration, probe):
            file = path_text(subject.path.rpartition(b"/")[2])
            own = path_text(subject.slug)
            lines += [file] if subject.title == own else [subject.title, file]
    return tuple(lines)


def _is_key(subject: Subject, declaration: Declaration, probe: str) -> bool:
    return is_under(subject.path, declaration.answer_keys.get(probe, ()))

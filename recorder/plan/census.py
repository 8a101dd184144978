"""The classified documents of a corpus, read from its shelves."""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recorder.plan.declaration import Declaration
from recorder.plan.nodes import NodeError
from recorder.plan.probes import (
    Document,
    Probe,
    ProbeFault,
    is_probe,
    read_document,
    read_probe,
)
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.manifest import digest_of, read_blocks, walk
from recorder.workspace.names import path_text

LOCK = ".headwater/taxonomy.lock"


@dataclass(frozen=True)
class Census:
    """Every classified document, and every probe of them or its fault, sorted by path bytewise.

    A document is classified when it is a Markdown file with front matter on a declared shelf.
    A symbolic link is no document: what it points at is one where it lies.
    """

    documents: tuple[Document, ...]
    probes: tuple[Probe | ProbeFault, ...]


def take_census(corpus: Path, declaration: Declaration) -> Census:
    """Read the shelves. Refuses (5) a document that cannot be read."""
    documents: dict[bytes, Document] = {}
    probes: dict[bytes, Probe | ProbeFault] = {}
    for path in _markdown(corpus, declaration):
        if path in documents:
            continue
        content = b"".join(read_blocks(os.path.join(os.fsencode(corpus), path)))
        name = path_text(path)
        try:
            document = read_document(name, content)
        except (NodeError, UnicodeDecodeError) as error:
            raise Refusal(
                ExitCode.PLAN,
                f"{corpus / name}: its front matter cannot be read ({error}); put it right",
            ) from error
        if document is None:
            continue
        documents[path] = document
        if is_probe(content):
            probes[path] = read_probe(name, content)
    return Census(
        documents=tuple(documents[path] for path in sorted(documents)),
        probes=tuple(probes[path] for path in sorted(probes)),
    )


def _markdown(corpus: Path, declaration: Declaration) -> Iterator[bytes]:
    for shelf in declaration.shelves:
        folder = corpus / shelf
        if not folder.is_dir():
            continue
        for found in walk(folder):
            if stat.S_ISREG(found.status.st_mode) and found.path.endswith(b".md"):
                yield os.fsencode(shelf) + b"/" + found.path


def lock_digest(corpus: Path, lock: str | None) -> str:
    """The lock member: a digest as given, the digest of a file, or that of the corpus' lock."""
    if lock is not None and lock.startswith("sha256:"):
        return lock
    path = corpus / LOCK if lock is None else Path(lock)
    try:
        return digest_of(path.read_bytes())
    except OSError as error:
        raise Refusal(
            ExitCode.PLAN,
            f"{path}: cannot be read ({error.strerror}); a plan names the lock of its taxonomy, "
            "give --lock FILE or --lock sha256:…",
        ) from error

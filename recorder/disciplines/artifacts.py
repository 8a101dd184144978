"""Disciplines as the check behind ``findings``: what a produced artifact breaks, by entry.

An artifact is judged from itself and the tree it lies in alone: no probe, no call, no history.
Entries that need those are not part of the check. An artifact has findings only where every entry
whose scope admits it came to a judgment, so that an empty list says that all were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recorder.disciplines.declaration import Declaration, Disciplines, Entry
from recorder.disciplines.judging import (
    Broken,
    Memo,
    NotApplicable,
    Passed,
    World,
    judge,
)
from recorder.disciplines.replay import Tree, side, state_of
from recorder.disciplines.values import ABSENT, UNPROVEN
from recorder.transform.produced import ProducedFile

# What a call or a whole session alone can show.
_NOT_OF_AN_ARTIFACT = frozenset({"command", "actor", "changes"})


@dataclass(frozen=True, slots=True)
class Artifact:
    """A produced file: its text before and after, ABSENT where there is none (or it is binary),
    UNPROVEN where it is not known."""

    path: str
    pre: Any
    post: Any


def artifacts_of(
    files: Iterable[ProducedFile], baseline: Tree, content: Callable[[str], bytes | None]
) -> tuple[Artifact, ...]:
    """The produced files inside the workspace that are there; ``content`` gives the bytes of a
    digest, None where they are not kept."""
    found = []
    for file in files:
        if file.path.startswith("/") or not file.sha256:
            continue
        after = content(file.sha256)
        post = UNPROVEN if after is None else side(state_of(after))
        found.append(Artifact(file.path, side(baseline.state(file.path)), post))
    return tuple(found)


def other_files(baseline: Tree, removed: Iterable[str] = ()) -> Callable[[str], Any]:
    """The texts of the tree's other files, less those that the session removed."""
    gone = frozenset(removed)
    return lambda path: ABSENT if path in gone else side(baseline.state(path))


def judges_artifacts(declaration: Declaration) -> bool:
    """Whether a declaration reads nothing but a file, its change, and other files."""
    if declaration.reads & _NOT_OF_AN_ARTIFACT:
        return False
    if declaration.scope is not None and declaration.scope.source == "command":
        return False
    return declaration.reads_kind("transcript", "sidecar") is None


@dataclass(frozen=True)
class ArtifactFindings:
    """The broken entries of each artifact that was judged; one without a key was not."""

    broken: dict[str, tuple[str, ...]]

    def attach(self, file: ProducedFile) -> ProducedFile:
        """The artifact with its findings, unchanged where it was not judged."""
        found = self.broken.get(file.path)
        return file if found is None else replace(file, findings=found)


def artifact_findings(
    disciplines: Disciplines,
    artifacts: Sequence[Artifact],
    file: Callable[[str], Any] = lambda _: ABSENT,
) -> ArtifactFindings:
    """Judge every artifact. ``file`` gives the text of any other file of the tree."""
    memo = Memo()
    posts = {artifact.path: artifact.post for artifact in artifacts}
    entries = [
        entry
        for entry in disciplines.entries
        if entry.declaration is not None and judges_artifacts(entry.declaration)
    ]
    broken: dict[str, tuple[str, ...]] = {}
    for artifact in artifacts:
        world = World(
            subject=artifact.path,
            path=artifact.path,
            pre=artifact.pre,
            post=artifact.post,
            file=lambda path: posts[path] if path in posts else file(path),
        )
        found = _broken(entries, world, memo)
        if found is not None:
            broken[artifact.path] = found
    return ArtifactFindings(broken)


def _broken(entries: Sequence[Entry], world: World, memo: Memo) -> tuple[str, ...] | None:
    """The entries an artifact breaks, sorted; None where not every one that admits it judged."""
    judged = 0
    found: list[str] = []
    for entry in entries:
        if entry.declaration is None:
            continue
        match judge(entry.declaration, world, memo):
            case NotApplicable(reason="scope"):
                continue
            case Passed() | Broken(opened=True):
                judged += 1
            case Broken():
                judged += 1
                found.append(entry.id)
            case _:
                return None
    return tuple(sorted(found)) if judged else None

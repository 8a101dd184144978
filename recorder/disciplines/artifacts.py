"""Disciplines as the check behind ``findings``: what a produced artifact breaks, by entry.

An artifact is judged from itself and the tree it lies in alone: no probe, no call, no history.
Entries that need those are not part of the check. An artifact has findings only where every entry
whose scope admits it came to a judgment, so that an empty list says that all were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from msgspec import UNSET

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
from recorder.evidence.document import DisciplinesRecord
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
        if not is_artifact(file):
            continue
        before = side(baseline.state(file.path))
        after = content(file.sha256)
        if after is not None:
            post = side(state_of(after))
        else:
            # A file that was written and ended as it began has no copy.
            same = baseline.digests.get(file.path) == file.sha256
            post = before if same else UNPROVEN
        found.append(Artifact(file.path, before, post))
    return tuple(found)


def is_artifact(file: ProducedFile) -> bool:
    """Whether a produced file can be judged: it is there, in the workspace, and has a name that
    is text."""
    inside = not file.path.startswith("/") and bool(file.sha256)
    return inside and not any("\udc80" <= character <= "\udcff" for character in file.path)


def other_files(
    baseline: Tree, removed: Iterable[str] = (), unknown: Iterable[str] = ()
) -> Callable[[str], Any]:
    """The texts of the tree's other files, less those that the session removed. ``unknown``: those
    that it may have changed and of which no copy is kept."""
    gone, not_known = frozenset(removed), frozenset(unknown)

    def read(path: str) -> Any:
        if path in not_known:
            return UNPROVEN
        return ABSENT if path in gone else side(baseline.state(path))

    return read


def judges_artifacts(declaration: Declaration | None) -> bool:
    """Whether a declaration reads nothing but a file, its change, and other files."""
    if declaration is None or declaration.reads & _NOT_OF_AN_ARTIFACT:
        return False
    if declaration.scope is not None and declaration.scope.source == "command":
        return False
    return declaration.reads_kind("transcript", "sidecar") is None


@dataclass(frozen=True)
class ArtifactFindings:
    """The broken entries of each artifact that was judged.

    ``not_judged`` are those that an entry admits and could not judge. One that is in neither is of
    no entry's scope.
    """

    broken: Mapping[str, tuple[str, ...]]
    not_judged: frozenset[str] = frozenset()

    def attach(self, file: ProducedFile) -> ProducedFile:
        """The artifact with its findings beside those that a command reported. One that was not
        judged has no list, because what the list does not name would pass for kept."""
        if file.path in self.not_judged:
            return replace(file, findings=UNSET)
        found = self.broken.get(file.path)
        if found is None:
            return file
        reported = () if file.findings is UNSET else file.findings
        return replace(file, findings=tuple(sorted({*reported, *found})))


def artifact_findings(
    disciplines: Disciplines,
    artifacts: Sequence[Artifact],
    file: Callable[[str], Any] = lambda _: ABSENT,
) -> ArtifactFindings:
    """Judge every artifact. ``file`` gives the text of any other file of the tree."""
    memo = Memo()
    posts = {artifact.path: artifact.post for artifact in artifacts}
    entries = judging_entries(disciplines)
    broken: dict[str, tuple[str, ...]] = {}
    not_judged: set[str] = set()
    for artifact in artifacts:
        world = World(
            subject=artifact.path,
            path=artifact.path,
            pre=artifact.pre,
            post=artifact.post,
            file=lambda path: posts[path] if path in posts else file(path),
        )
        ends = {entry.id: end for entry in entries if (end := _end(entry, world, memo))}
        if "not judged" in ends.values():
            not_judged.add(artifact.path)
        elif ends:
            broken[artifact.path] = tuple(sorted(name for name in ends if ends[name] == "broken"))
    return ArtifactFindings(broken, frozenset(not_judged))


def judging_entries(disciplines: Disciplines) -> tuple[Entry, ...]:
    """The entries that judge an artifact, in the file's order."""
    return tuple(entry for entry in disciplines.entries if judges_artifacts(entry.declaration))


def _end(entry: Entry, world: World, memo: Memo) -> Literal["kept", "broken", "not judged"] | None:
    """What an entry comes to over an artifact; None where its scope does not admit it."""
    if entry.declaration is None:
        return None
    match judge(entry.declaration, world, memo):
        case NotApplicable(reason="scope"):
            return None
        case Passed() | Broken(opened=True):
            return "kept"
        case Broken():
            return "broken"
        case _:
            return "not judged"


def findings_record(
    disciplines: Disciplines, findings: ArtifactFindings | None
) -> DisciplinesRecord:
    """What evidence.json says of it; ``findings`` is None where nothing was judged at all."""
    broken = None if findings is None else findings.broken
    return DisciplinesRecord(
        file=disciplines.name,
        digest=disciplines.digest,
        entries=tuple(entry.id for entry in judging_entries(disciplines)),
        judged=None if broken is None else len(broken),
        not_judged=() if findings is None else tuple(sorted(findings.not_judged)),
        findings=None if broken is None else sum(map(len, broken.values())),
    )

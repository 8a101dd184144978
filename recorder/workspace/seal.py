"""The seal: what a workspace loses so that no session can read its own answer.

Three steps, and only the last one changes a file: which names give a probe away (read from
the corpus, never from the workspace), what each file of the workspace has to lose (each file
read once), and the doing of it. The guard runs the first two and refuses what they find.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH105, PTH106, PTH108, PTH115, PTH118, PTH123

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recorder.plan.census import take_census
from recorder.plan.declaration import Declaration
from recorder.plan.nodes import NodeError
from recorder.plan.probes import Probe, read_document
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import HISTORY, is_history, is_under
from recorder.workspace.cutting import cut
from recorder.workspace.manifest import Found, read_blocks, walk
from recorder.workspace.names import inside, path_text
from recorder.workspace.naming import Names, Subject, shared_names, slug_of
from recorder.workspace.place import require_outside_corpus

DOCUMENTS = b"docs"
CLAIMS = b".headwater/ids"


@dataclass(frozen=True, slots=True)
class Removal:
    """A file that goes whole, with why. ``title`` names the subject it is removed for."""

    path: bytes
    title: str
    why: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A file that loses pieces. ``pieces`` counts them by the title of a subject."""

    path: bytes
    content: bytes
    pieces: Mapping[str, int]


@dataclass(frozen=True)
class Sealing:
    """What a workspace has to lose, each path once.

    ``instrument`` are the declared paths it holds. ``documents`` maps the title of each named
    document and answer key that was removed here to the probe it goes with.
    """

    instrument: tuple[bytes, ...] = ()
    removals: tuple[Removal, ...] = ()
    edits: tuple[Edit, ...] = ()
    documents: Mapping[str, str] = field(default_factory=dict)
    generic: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.instrument or self.removals or self.edits)

    def lines(self) -> tuple[str, ...]:
        """The report, a line for each thing that goes."""
        if self.nothing:
            return ("seal: nothing to do",)
        report = [f"seal: removed the instrument {path_text(path)}" for path in self.instrument]
        pieces: dict[str, int] = {}
        for edit in self.edits:
            for title, count in edit.pieces.items():
                pieces[title] = pieces.get(title, 0) + count
        for title, probe in self.documents.items():
            count = pieces.pop(title, 0)
            report.append(
                f"seal: removed the named document {title} of {probe}, and {count} lines naming it"
            )
        for title, count in sorted(pieces.items()):
            report.append(f"seal: removed {count} lines naming {title}")
        report += [
            f"seal: removed {path_text(removal.path)}, {removal.why}" for removal in self.removals
        ]
        report += [f"seal: kept every line naming {slug}" for slug in self.generic]
        return tuple(report)


@dataclass(frozen=True)
class Secrets:
    """What must not be named in a workspace: the probes, and the documents that go with them.

    ``probe_of`` maps the title of a document to the probe it goes with; ``keys`` are the
    titles of the declared answer keys among them.
    """

    probes: tuple[Subject, ...]
    documents: tuple[Subject, ...]
    probe_of: Mapping[str, str]
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Read:
    """One thing of a tree and the bytes that can name something: a file's, or a link's text."""

    path: bytes
    content: bytes


def secrets_of(corpus: Path, declaration: Declaration, probes: Sequence[str]) -> Secrets:
    """The names of the probes, and of every document of the corpus that names one or is a key.

    Refuses (2) a probe the corpus does not hold, (8) an answer key it does not hold.
    """
    if not probes:
        raise Refusal(ExitCode.USAGE, "name at least one probe to seal for")
    census = take_census(corpus, declaration)
    known = {probe.id: probe for probe in census.probes if isinstance(probe, Probe)}
    found = list(walk(corpus, closed=frozenset({HISTORY})))
    shared = shared_names(item.path for item in found if stat.S_ISREG(item.status.st_mode))
    subjects = []
    for identifier in dict.fromkeys(probes):
        probe = known.get(identifier)
        if probe is None:
            raise Refusal(
                ExitCode.USAGE,
                f"{identifier}: no probe of {corpus}; it holds {', '.join(known) or 'none'}",
            )
        path = os.fsencode(probe.path)
        subjects.append(
            Subject(
                path=path,
                identifier=os.fsencode(probe.id),
                slug=slug_of(path),
                shared=path.rpartition(b"/")[2] in shared,
                is_probe=True,
                title=probe.id,
            )
        )
    return _with_documents(corpus, declaration, tuple(subjects), found, shared)


def _with_documents(
    corpus: Path,
    declaration: Declaration,
    probes: tuple[Subject, ...],
    found: Sequence[Found],
    shared: frozenset[bytes],
) -> Secrets:
    probe_of_key = {
        os.fsencode(key): probe.title
        for probe in probes
        for key in declaration.answer_keys.get(probe.title, ())
    }
    for declared in probe_of_key:
        if not any(inside(item.path, declared) for item in found):
            raise Refusal(
                ExitCode.INSTRUMENT,
                f"{path_text(declared)}: declared as an answer key and not in {corpus}; "
                "put its path right, or a session could read it under another name",
            )
    names = Names(probes)
    documents: list[Subject] = []
    probe_of: dict[str, str] = {}
    keys: set[str] = set()
    for item in found:
        if not stat.S_ISREG(item.status.st_mode) or is_under(item.path, declaration.instrument):
            continue
        probe = _key_of(item.path, probe_of_key)
        is_key = probe is not None
        if not is_key and not _may_go_with(item.path, declaration):
            continue
        content = _content(corpus, item)
        if probe is None:
            named = names.found(content)
            probe = named[0].title if named else None
        if probe is None:
            continue
        subject = _document(item.path, content, shared)
        documents.append(subject)
        probe_of[subject.title] = probe
        if is_key:
            keys.add(subject.title)
    return Secrets(probes, tuple(documents), probe_of, frozenset(keys))


def _key_of(path: bytes, probe_of_key: Mapping[bytes, str]) -> str | None:
    """The probe that a path is an answer key of, None where it is none."""
    for key, probe in probe_of_key.items():
        if inside(path, key):
            return probe
    return None


def _may_go_with(path: bytes, declaration: Declaration) -> bool:
    """Whether a file is a document, which is removed with every line that names it."""
    if not path.endswith(b".md") or is_under(path, declaration.folds):
        return False
    return inside(path, DOCUMENTS) or is_under(path, declaration.shelves)


def _document(path: bytes, content: bytes, shared: frozenset[bytes]) -> Subject:
    try:
        document = read_document(path_text(path), content)
    except (NodeError, UnicodeDecodeError):
        document = None
    slug = slug_of(path)
    subject = Subject(
        path=path,
        identifier=None,
        slug=slug,
        shared=path.rpartition(b"/")[2] in shared,
        is_probe=False,
        title=path_text(slug),
    )
    if document is not None and document.identifier is not None:
        identifier = os.fsencode(document.identifier)
        return Subject(path, identifier, slug, subject.shared, False, document.identifier)
    if subject.generic:
        return subject
    return Subject(path, slug, slug, subject.shared, False, subject.title)


def _content(root: Path, found: Found) -> bytes:
    """The bytes of a file or the text of a link; empty for a folder."""
    full = os.path.join(os.fsencode(root), found.path)
    mode = found.status.st_mode
    if stat.S_ISLNK(mode):
        return os.readlink(full)
    if stat.S_ISREG(mode):
        return b"".join(read_blocks(full))
    if stat.S_ISDIR(mode):
        return b""
    raise Refusal(
        ExitCode.USAGE,
        f"{path_text(full)}: neither a file, a directory nor a link; "
        "remove it, a workspace holds no device, socket or FIFO",
    )


def decide(
    things: Iterable[Read],
    secrets: Secrets,
    declaration: Declaration,
    instrument: Sequence[bytes] = (),
) -> Sealing:
    """What a workspace has to lose; pure, and each thing is looked at once.

    ``things`` are without the instrument, which ``instrument`` names.
    """
    judge = _Judge(secrets, declaration)
    removals: list[Removal] = []
    edits: list[Edit] = []
    for thing in things:
        verdict = judge.of(thing)
        if isinstance(verdict, Removal):
            removals.append(verdict)
        elif verdict is not None:
            edits.append(verdict)
    gone = [
        judge.documents[removal.path] for removal in removals if removal.path in judge.documents
    ]
    return Sealing(
        instrument=tuple(instrument),
        removals=tuple(removals),
        edits=tuple(edits),
        documents={subject.title: secrets.probe_of[subject.title] for subject in gone},
        generic=tuple(sorted({path_text(item.slug) for item in gone if item.generic})),
    )


class _Judge:
    """What one thing of a workspace has to lose."""

    def __init__(self, secrets: Secrets, declaration: Declaration) -> None:
        self.documents = {subject.path: subject for subject in secrets.documents}
        self._secrets = secrets
        self._folds = declaration.folds
        self._probe_names = Names(secrets.probes)
        self._document_names = Names(secrets.documents)

    def of(self, thing: Read) -> Removal | Edit | None:
        removal = self._whole(thing)
        if removal is not None:
            return removal
        named = self._document_names.found(thing.content)
        if not named:
            return None
        left = cut(thing.path, thing.content, self._document_names)
        if left.content is not None:
            return Edit(thing.path, left.content, left.pieces)
        title = named[0].title
        return Removal(thing.path, title, f"which names {title} where no line can be taken out")

    def _whole(self, thing: Read) -> Removal | None:
        """Why a thing goes whole, None where it does not."""
        subject = self.documents.get(thing.path)
        if subject is not None:
            kind = "answer key" if subject.title in self._secrets.keys else "named document"
            probe = self._secrets.probe_of[subject.title]
            return Removal(thing.path, subject.title, f"the {kind} {subject.title} of {probe}")
        if named := self._document_names.found(thing.path):
            what = "the claim of" if inside(thing.path, CLAIMS) else "whose name holds"
            return Removal(thing.path, named[0].title, f"{what} {named[0].title}")
        if is_under(thing.path, self._folds):
            return None
        if named := self._probe_names.found(thing.path):
            return Removal(thing.path, named[0].title, f"whose name holds {named[0].title}")
        if named := self._probe_names.found(thing.content):
            return Removal(thing.path, named[0].title, f"which names {named[0].title}")
        return None


def seal(
    workspace: Path,
    probes: Sequence[str],
    corpus: Path,
    declaration: Declaration,
    *,
    dry_run: bool = False,
) -> Sealing:
    """Seal a workspace for the probes of its sessions, and say what went.

    Refuses (6) a workspace inside the corpus, (2) one that is not there, (8) a file or an
    instrument that cannot be read; whatever is refused, nothing was removed.
    """
    require_outside_corpus(workspace, corpus, "workspace")
    if not workspace.is_dir():
        raise Refusal(ExitCode.USAGE, f"{workspace}: is no directory; name a workspace to seal")
    secrets = secrets_of(corpus, declaration, probes)
    sealing = examine(workspace, secrets, declaration, ExitCode.INSTRUMENT)
    if not dry_run:
        _apply(workspace, sealing)
    return sealing


def examine(
    workspace: Path, secrets: Secrets, declaration: Declaration, unreadable: ExitCode
) -> Sealing:
    """What a workspace has to lose. Refuses with ``unreadable`` what cannot be read in it.

    A document that only the workspace holds, and that names a probe, goes with every line that
    names it too; so the documents are read before the rest, and each file once.
    """
    found, instrument = _walk_workspace(workspace, declaration, unreadable)
    reading = _Reading(workspace, unreadable)
    whole = _with_fresh(secrets, found, reading, declaration)
    return decide(map(reading.take, found), whole, declaration, instrument)


def _with_fresh(
    secrets: Secrets, found: Sequence[Found], reading: _Reading, declaration: Declaration
) -> Secrets:
    """The secrets, and the documents naming a probe that only the workspace holds."""
    shared = shared_names(item.path for item in found if stat.S_ISREG(item.status.st_mode))
    known = {subject.path for subject in secrets.documents}
    names = Names(secrets.probes)
    documents = list(secrets.documents)
    probe_of = dict(secrets.probe_of)
    for item in found:
        if (
            item.path in known
            or not stat.S_ISREG(item.status.st_mode)
            or not _may_go_with(item.path, declaration)
        ):
            continue
        content = reading.ahead(item)
        if named := names.found(content):
            subject = _document(item.path, content, shared)
            documents.append(subject)
            probe_of[subject.title] = named[0].title
    return replace(secrets, documents=tuple(documents), probe_of=probe_of)


class _Reading:
    """The things of a workspace, each read once. What is read ahead is kept until it is taken."""

    def __init__(self, workspace: Path, unreadable: ExitCode) -> None:
        self._workspace = workspace
        self._unreadable = unreadable
        self._ahead: dict[bytes, bytes] = {}

    def ahead(self, found: Found) -> bytes:
        content = _readable(self._workspace, found, self._unreadable)
        self._ahead[found.path] = content
        return content

    def take(self, found: Found) -> Read:
        content = self._ahead.pop(found.path, None)
        if content is None:
            content = _readable(self._workspace, found, self._unreadable)
        return Read(found.path, content)


def _readable(workspace: Path, found: Found, unreadable: ExitCode) -> bytes:
    try:
        return _content(workspace, found)
    except Refusal as refused:
        raise Refusal(unreadable, *refused.reasons) from refused


def walk_readable(workspace: Path, unreadable: ExitCode) -> Iterator[Found]:
    """Everything of a workspace, into no ``.git``. Refuses with ``unreadable`` a closed folder."""
    try:
        yield from walk(workspace, closed=frozenset({HISTORY}))
    except Refusal as refused:
        raise Refusal(unreadable, *refused.reasons) from refused


def _walk_workspace(
    workspace: Path, declaration: Declaration, unreadable: ExitCode
) -> tuple[list[Found], tuple[bytes, ...]]:
    """Everything but the instrument and ``.git``, and which declared paths are there."""
    found: list[Found] = []
    there: set[bytes] = set()
    entries = [os.fsencode(entry) for entry in declaration.instrument]
    for item in walk_readable(workspace, unreadable):
        held = [entry for entry in entries if inside(item.path, entry)]
        there.update(entry for entry in held if item.path == entry)
        if not held and not is_history(item.path):
            found.append(item)
    for entry in entries:
        if entry not in there and os.path.lexists(os.path.join(os.fsencode(workspace), entry)):
            raise Refusal(
                ExitCode.INSTRUMENT,
                f"{path_text(entry)}: the instrument is reached through a link of {workspace}; "
                "lay the workspace again without that link",
            )
    return found, tuple(sorted(there))


def _apply(workspace: Path, sealing: Sealing) -> None:
    root = os.fsencode(workspace)
    for path in sealing.instrument:
        _remove(os.path.join(root, path))
    for removal in sealing.removals:
        _remove(os.path.join(root, removal.path))
    for edit in sealing.edits:
        _rewrite(os.path.join(root, edit.path), edit.content)
    paths = [*sealing.instrument, *(removal.path for removal in sealing.removals)]
    for path in paths:
        _prune(root, path.rpartition(b"/")[0])


def _remove(path: bytes) -> None:
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        # An entry inside another one that went before it.
        return


def _rewrite(path: bytes, content: bytes) -> None:
    """Put a new file in the place of the old one: the old one may be a hard link elsewhere."""
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    partial = path + b".sealing"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(partial, flags, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, mode)
    os.replace(partial, path)


def _prune(root: bytes, folder: bytes) -> None:
    """Remove folders that the seal emptied: their names can give away what they held."""
    while folder:
        try:
            os.rmdir(os.path.join(root, folder))
        except OSError:
            return
        folder = folder.rpartition(b"/")[0]

"""The worlds of a recorded session: a file before and after each call, by replay. Pure.

A file's text before a call is what the baseline tree and the calls before it make of it; after
it, what the call's own arguments do. At the end the replay is held to what the recorder found in
the workspace: a file on which the two disagree is unproven in every world, and a change that no
call is seen to make is unattributed.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recorder.disciplines.edits import EDIT_TOOLS, edited_path, edited_text
from recorder.disciplines.history import SHELL_TOOL, History, SessionCall
from recorder.disciplines.judging import World
from recorder.disciplines.shell import shell_evidence
from recorder.disciplines.steps import HistoryIndex
from recorder.disciplines.values import ABSENT, UNPROVEN, Snapshot
from recorder.transform.produced import Places
from recorder.workspace.manifest import digest_of

# A file's state: its text, ABSENT (no file), BINARY (no text), UNPROVEN (nothing says).
State = Any


class _Binary:
    __slots__ = ()

    def __repr__(self) -> str:
        return "BINARY"


BINARY = _Binary()


def state_of(content: bytes) -> State:
    """The state of a file with these bytes: text where it is UTF-8 without a NUL."""
    if b"\0" in content:
        return BINARY
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return BINARY


def side(state: State) -> Any:
    """A state as a side of a world: a binary file has none."""
    return ABSENT if state is BINARY else state


@dataclass(frozen=True)
class Tree:
    """A tree as digests, and the texts of those of its files that can be shown.

    ``content`` gives bytes of a path that were held to its digest, or None.
    """

    digests: Mapping[str, str]
    content: Callable[[str], bytes | None]

    def state(self, path: str) -> State:
        if path not in self.digests:
            return ABSENT
        content = self.content(path)
        return UNPROVEN if content is None else state_of(content)


@dataclass(frozen=True)
class Ended:
    """What the recorder found after the session.

    ``digests``: of every path that was added or changed, None where no digest is kept (a link).
    ``complete``: nothing of the workspace was left unread, so a path that is named nowhere did
    not change. ``unread``: paths whose bytes the recorder does not have. ``content`` gives the
    kept bytes of a digest.
    """

    digests: Mapping[str, str | None]
    removed: frozenset[str]
    complete: bool
    unread: frozenset[str]
    content: Callable[[str], bytes | None]

    @property
    def changed(self) -> tuple[str, ...]:
        return tuple(sorted({*self.digests, *self.removed}))


@dataclass(frozen=True)
class Observation:
    """One call's worlds. ``number`` counts the session's calls from 1."""

    number: int
    call: SessionCall
    worlds: tuple[World, ...]


@dataclass(frozen=True)
class Replay:
    """A session as observations.

    ``observe`` gives them in order, one at a time: each holds the history before it, so that all
    of a long session at once would be its square. ``unproven``: paths on which replay and
    workspace disagree. ``unattributed``: worlds of changes that no call is seen to make.
    ``whole``: the whole session as one observation.
    """

    observe: Callable[[], Iterator[Observation]]
    unproven: tuple[str, ...]
    unattributed: tuple[World, ...]
    whole: tuple[World, ...]

    @property
    def observations(self) -> Iterator[Observation]:
        return self.observe()


@dataclass(frozen=True, slots=True)
class _Step:
    path: str
    pre: State
    post: State


@dataclass(slots=True)
class _Files:
    """The files as the calls so far leave them; what no call wrote is the baseline's."""

    baseline: Tree
    written: dict[str, State] = field(default_factory=dict)
    known: dict[str, State] = field(default_factory=dict)

    def state(self, path: str) -> State:
        return self.written[path] if path in self.written else self.first(path)

    def leave(self, call: SessionCall, step: _Step) -> None:
        """The file as a call leaves it: one that failed changed nothing, but for a shell line,
        which may have written before it failed."""
        if call.succeeded:
            self.written[step.path] = step.post
        elif call.tool == SHELL_TOOL:
            self.written[step.path] = UNPROVEN

    def first(self, path: str) -> State:
        """The state before any call."""
        if path not in self.known:
            self.known[path] = self.baseline.state(path)
        return self.known[path]


def replay(history: History, baseline: Tree, ended: Ended, places: Places) -> Replay:
    """Replay a session over its baseline."""
    files = _Files(baseline)
    steps: list[tuple[SessionCall, tuple[_Step, ...]]] = []
    moved = False
    for call in history.calls:
        made, moves = _steps(call, files, places, moved)
        moved = moved or moves
        for step in made:
            files.leave(call, step)
        steps.append((call, made))
    unproven = frozenset(_disagreeing(files, baseline, ended))
    whole = tuple(_whole(history, baseline, ended))
    seen = {step.path for _, made in steps for step in made}
    unattributed = tuple(
        replace(world, changes=UNPROVEN) for world in whole if world.path not in seen
    )
    return Replay(
        lambda: _observations(history, baseline, steps, unproven),
        tuple(sorted(unproven)),
        unattributed,
        whole,
    )


def _observations(
    history: History,
    baseline: Tree,
    steps: Sequence[tuple[SessionCall, tuple[_Step, ...]]],
    unproven: frozenset[str],
) -> Iterator[Observation]:
    files = _Files(baseline)
    snapshots = _Snapshots(history)
    for number, (call, made) in enumerate(steps, start=1):
        world = World(
            actor=call.actor,
            command=_command(call),
            # What the call itself writes is read as the call leaves it.
            file=_reader(
                {**files.written, **{step.path: step.post for step in made}}, files, unproven
            ),
            sidecar=snapshots.sidecar(call.line),
            transcript=snapshots.before(number - 1, call.line, call.at_ms),
        )
        worlds = tuple(_worlds(call, [_proven(step, unproven) for step in made], world))
        if worlds:
            yield Observation(number, call, worlds)
        for step in made:
            files.leave(call, step)


def _proven(step: _Step, unproven: frozenset[str]) -> _Step:
    return _Step(step.path, UNPROVEN, UNPROVEN) if step.path in unproven else step


def _command(call: SessionCall) -> Any:
    command = call.arguments.get("command")
    return command if call.tool == SHELL_TOOL and isinstance(command, str) else ABSENT


def _steps(
    call: SessionCall, files: _Files, places: Places, moved: bool
) -> tuple[tuple[_Step, ...], bool]:
    """What a call does to each file it is seen to write; and whether the shell moved on."""
    if call.tool in EDIT_TOOLS:
        named = edited_path(call.tool, call.arguments)
        path = None if named is None else _inside(places, named)
        if path is None:
            return (), False
        pre = files.state(path)
        return (_Step(path, pre, _edited(call, pre)),), False
    command = _command(call)
    if command is ABSENT:
        return (), False
    evidence = shell_evidence(command)
    posts: dict[str, State] = {}
    for write in evidence.writes:
        path = None if moved and not write.path.startswith("/") else _inside(places, write.path)
        if path is None:
            continue
        pre = posts.get(path, files.state(path))
        posts[path] = _written(pre, write.content, write.mode)
    for unknown in evidence.unknown:
        relative = unknown.path is not None and not unknown.path.startswith("/")
        if unknown.path is None or (moved and relative):
            continue
        path = _inside(places, unknown.path)
        if path is not None:
            posts[path] = UNPROVEN
    return tuple(_Step(path, files.state(path), post) for path, post in posts.items()), (
        evidence.moves
    )


def _inside(places: Places, path: str) -> str | None:
    """The path relative to the workspace; None outside it, and for the workspace itself."""
    placed = places.place(path)
    return None if placed.startswith("/") or placed == "." else placed


def _edited(call: SessionCall, pre: State) -> State:
    if call.tool != "Write" and not isinstance(pre, str) and pre is not ABSENT:
        return UNPROVEN
    text = edited_text(call.tool, call.arguments, pre if isinstance(pre, str) else None)
    return UNPROVEN if text is None else text


def _written(pre: State, content: str, mode: str) -> State:
    if mode == "truncate" or pre is ABSENT:
        return content
    return pre + content if isinstance(pre, str) else UNPROVEN


def _disagreeing(files: _Files, baseline: Tree, ended: Ended) -> Iterator[str]:
    """The written paths whose replayed text is not what the recorder found."""
    for path, state in files.written.items():
        if not isinstance(state, str) or path in ended.unread or path in ended.removed:
            yield path
            continue
        found = ended.digests.get(path) if path in ended.digests else baseline.digests.get(path)
        known = path in ended.digests or ended.complete
        if not known or digest_of(state.encode("utf-8", "surrogatepass")) != found:
            yield path


def _reader(
    written: Mapping[str, State], files: _Files, unproven: frozenset[str]
) -> Callable[[str], Any]:
    def read(path: str) -> Any:
        if path in unproven:
            return UNPROVEN
        return side(written[path] if path in written else files.first(path))

    return read


def _worlds(call: SessionCall, steps: Sequence[_Step], world: World) -> Iterator[World]:
    for step in steps:
        yield replace(
            world,
            subject=step.path,
            path=step.path,
            pre=side(step.pre),
            post=side(step.post),
            changes=UNPROVEN,
        )
    if not steps and call.tool == SHELL_TOOL and world.command is not ABSENT:
        yield world


class _Snapshots:
    """The history before each call: strictly before, also of what its earlier calls returned."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._ordinal = len(history.turns)
        self._turns = [
            {
                "index": number,
                "text": turn.text,
                **({} if turn.at_ms is None else {"timestampMs": turn.at_ms}),
            }
            for number, turn in enumerate(history.turns)
        ]
        self._calls = [
            {
                "index": self._ordinal + number,
                "name": call.tool,
                "args": call.arguments,
                "succeeded": False,
            }
            for number, call in enumerate(history.calls)
        ]
        self._index = HistoryIndex(list(self._calls))
        self._current = list(self._calls)
        self._waiting = sorted(
            (call.result_line, number)
            for number, call in enumerate(history.calls)
            if call.result_line is not None and call.succeeded
        )
        self._spawns: tuple[int, str] = (-1, "[]")

    def before(self, count: int, line: int, at_ms: int | None) -> Snapshot:
        """Asked in stream order: the first ``count`` calls, results before ``line``."""
        while self._waiting and self._waiting[0][0] < line:
            _, number = self._waiting.pop(0)
            self._current[number] = {**self._calls[number], "succeeded": True}
        content: dict[str, Any] = {
            "userMessages": self._turns,
            "toolCalls": self._current[:count],
        }
        if at_ms is not None:
            content["observedAtMs"] = at_ms
        return Snapshot(content, self._index)

    def sidecar(self, line: int) -> str:
        """The spawn records before a line, as JSON text."""
        records = [spawn.record for spawn in self._history.spawns if spawn.line < line]
        if self._spawns[0] != len(records):
            self._spawns = (len(records), json.dumps(records))
        return self._spawns[1]


def _whole(history: History, baseline: Tree, ended: Ended) -> Iterator[World]:
    """One world for each changed path, each with the whole change set."""
    snapshots = _Snapshots(history)
    last = max([call.line for call in history.calls], default=0) + (1 << 40)
    transcript = snapshots.before(len(history.calls), last, history.last_ms)
    changes = list(ended.changed)

    def after(path: str) -> Any:
        if path in ended.unread:
            return UNPROVEN
        if path in ended.removed:
            return ABSENT
        if path not in ended.digests:
            return side(baseline.state(path)) if ended.complete else UNPROVEN
        digest = ended.digests[path]
        content = None if digest is None else ended.content(digest)
        return UNPROVEN if content is None else side(state_of(content))

    for path in changes:
        yield World(
            subject=path,
            path=path,
            pre=side(baseline.state(path)),
            post=after(path),
            changes=changes if ended.complete else UNPROVEN,
            file=after,
            sidecar=snapshots.sidecar(last),
            transcript=transcript,
        )


def relative_to(root: str, path: str) -> str | None:
    """A path relative to a root, ``./`` and ``..`` resolved; None outside the root."""
    normal = posixpath.normpath(posixpath.join(root, path))
    if normal == root or not normal.startswith(root.rstrip("/") + "/"):
        return None
    return normal[len(root.rstrip("/")) + 1 :]

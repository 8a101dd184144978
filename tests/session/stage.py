"""Real sessions for tests: a corpus and a script written by the test, recorded as a user would.

A test module declares its scenes in ``SCENES``; the fixture ``stage`` (tests/session/conftest.py)
starts one rehearsal provider for the module and records the scenes two at a time.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from recorder.batch.batch import image_id
from recorder.batch.line import lay_line
from recorder.batch.recording import Job, Recorded, Setting, open_session, record
from recorder.batch.spec import LineSpec
from recorder.engine.client import Engine, open_engine
from recorder.rehearsal.script import credential as rehearsal_credential
from recorder.session.attach import Attachment, attach
from recorder.session.container import SESSION_UID, Limits, session_container
from recorder.session.driver import OUTCOME_FILE, OUTCOME_LIMIT, Order, control_files
from recorder.session.frames import STDOUT
from recorder.session.harness import PLACEHOLDER_KEY, environment
from recorder.session.leftovers import DRIVER_LABEL, driver_identity
from recorder.session.sidecar import Credential, Upstream
from recorder.session.upstream import rehearsal_network

PROBE = "PROBE-TEST-one"
MODEL = "claude-sonnet-4-5"
AT_ONCE = 2
CELL_SECONDS = 20.0

File = str | bytes
Block = Mapping[str, object]
Turn = Mapping[str, object]


def turn(*blocks: Block) -> Turn:
    """One answer of the provider."""
    return {"content": list(blocks)}


def text(words: str) -> Block:
    return {"text": words}


def call(tool: str, **arguments: object) -> Block:
    return {"tool_use": {"name": tool, "input": arguments}}


def bash(command: str, **arguments: object) -> Block:
    return call("Bash", command=command, description="A step of the test", **arguments)


@dataclass(frozen=True)
class Scene:
    """What one session meets. ``files`` is its workspace; ``turns`` what the provider answers.

    ``subagents`` maps a text of a subagent's first message to that subagent's turns. ``order``
    changes the session's order, and ``meddling`` what lies in its container: how a test shows
    that it fails where the construction is another. ``credential`` gives the rehearsal's another
    form, and ``dollars`` is the session's bound. ``watch`` is called just after the start.
    """

    turns: tuple[Turn, ...]
    files: Mapping[str, File] = field(default_factory=dict)
    executable: frozenset[str] = frozenset()
    subagents: Mapping[str, tuple[Turn, ...]] = field(default_factory=dict)
    order: Callable[[Order], Order] = lambda order: order
    credential: Callable[[Credential], Credential] = lambda credential: credential
    watch: Callable[[Engine, str], None] = lambda _engine, _container: None
    dollars: Decimal | None = None
    meddling: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    eager: bool = True


@dataclass(frozen=True)
class Take:
    """A recorded scene."""

    recorded: Recorded
    directory: Path
    credential: str

    @cached_property
    def raw(self) -> bytes:
        return (self.directory / "raw.jsonl").read_bytes()

    @cached_property
    def lines(self) -> tuple[dict[str, Any], ...]:
        return tuple(json.loads(line) for line in self.raw.splitlines())

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The text of every tool result, in the order of the calls."""
        order: list[str] = []
        found: dict[str, str] = {}
        for line in self.lines:
            content = line.get("message", {}).get("content")
            for block in content if isinstance(content, list) else ():
                if block["type"] == "tool_use":
                    order.append(block["id"])
                elif block["type"] == "tool_result":
                    found[block["tool_use_id"]] = _flat(block["content"])
        return tuple(found[name] for name in order if name in found)

    @property
    def final(self) -> str:
        """The final text, by the result line."""
        found = [line for line in self.lines if line.get("type") == "result"]
        return str(found[-1]["result"])

    @cached_property
    def egress(self) -> tuple[dict[str, Any], ...]:
        content = (self.directory / "egress.jsonl").read_text("utf-8")
        return tuple(json.loads(line) for line in content.splitlines())

    def whole(self) -> Take:
        """Itself, where the session was recorded as usual; an assertion with the reasons else."""
        assert self.recorded.refusal is None, (
            self.recorded.refusal.reasons,
            (self.directory / "stderr.log").read_text("utf-8", "replace")[-2000:],
            self.raw[-2000:],
        )
        return self

    def produced(self, path: str) -> str:
        """A file that the session left in its workspace."""
        event = self.whole().recorded.event
        assert event is not None
        assert isinstance(event.produced, tuple)
        found = {artifact.path: artifact.result for artifact in event.produced}
        assert path in found, (path, sorted(found), self.results)
        copy = self.directory / "produced" / found[path].removeprefix("sha256:")
        return copy.read_text("utf-8", "replace")


def _flat(content: object) -> str:
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    return "\n".join(str(block.get("text", "")) for block in content)


@dataclass(frozen=True)
class MeddledEngine(Engine):
    """Puts one more archive into a session's container, after the driver's and before its start."""

    archive: bytes = b""
    watch: Callable[[Engine, str], None] = lambda _engine, _container: None

    def start(self, container: str) -> None:
        labels = self.inspect(container)["Config"]["Labels"]
        is_session = labels.get("recorder.role") == "session"
        if self.archive and is_session:
            self.put(container, "/", iter([self.archive]))
        super().start(container)
        if is_session:
            self.watch(self, container)


def archive_of(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """A tar of root's files: path to content and mode."""
    gathered = io.BytesIO()
    with tarfile.open(fileobj=gathered, mode="w") as archive:
        for path, (data, mode) in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return gathered.getvalue()


_DECLARATION = """\
instrument: [docs/probes, .headwater/probe.yml]
shelves: [docs]
tiers:
  regression:
    budget_cents: 500
    session_cost_cents: 25
    repetitions: 1
    max_turns: 60
    arms: [present]
"""
_PROBE_DOCUMENT = """\
---
id: {probe}
status: current
status_since: 2025-11-10
summary: A test's session.
probe_category: navigability
expectation: answered
oracle: "none"
relations:
  examines:
    - DOC-TEST-0001
---

# A session

## Task

Do what the script says.

## Expectation

```yaml
answers: [done, failed]
expected: [done]
```
"""
_DOCUMENT = """\
---
id: DOC-TEST-0001
status: current
summary: The one document.
---

# A document
"""


def write_corpus(corpus: Path, scene: Scene) -> None:
    """A corpus with one probe, whose tree is the scene's files."""
    instrument = {
        ".headwater/probe.yml": _DECLARATION,
        ".headwater/taxonomy.lock": "taxonomy: test\nversion: 1\n",
        "docs/probes/0001.md": _PROBE_DOCUMENT.format(probe=PROBE),
        "docs/document.md": _DOCUMENT,
    }
    for name, content in {**instrument, **scene.files}.items():
        path = corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755 if name in scene.executable else 0o644)


class Stage:
    """Records the scenes of a module, two at a time, each once."""

    def __init__(
        self, docker_host: str, upstream: Upstream, directory: Path, scenes: Mapping[str, Scene]
    ) -> None:
        self._docker_host = docker_host
        self._upstream = upstream
        self._directory = directory
        self._scenes = scenes
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._takes: dict[str, Future[Take]] = {}
        self._uids = list(range(SESSION_UID, SESSION_UID + AT_ONCE))
        self._lock = Lock()
        self.begin(name for name, scene in scenes.items() if scene.eager)

    def begin(self, names: Iterable[str]) -> None:
        """Start what is not begun yet, in this order."""
        for name in names:
            if name not in self._takes:
                self._takes[name] = self._pool.submit(self._record, name)

    def take(self, name: str) -> Take:
        self.begin([name])
        return self._takes[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _record(self, name: str) -> Take:
        scene = self._scenes[name]
        with self._lock:
            uid = self._uids.pop()
        engine = MeddledEngine(
            self._docker_host,
            (plain := open_engine(self._docker_host)).api,
            archive_of(scene.meddling) if scene.meddling else b"",
            scene.watch,
        )
        try:
            return self._run(engine, name, scene, uid)
        finally:
            plain.close()
            with self._lock:
                self._uids.append(uid)

    def _run(self, engine: Engine, name: str, scene: Scene, uid: int) -> Take:
        corpus = self._directory / name / "corpus"
        write_corpus(corpus, scene)
        laid = lay_line(
            corpus, LineSpec(tier="regression", arm="present"), self._directory / name / "tree"
        )
        probe = laid.probes[0]
        session = f"{self._directory.name}-{name}"
        credential = rehearsal_credential(script_key(name), session)
        setting = Setting(
            session_image=image_id(engine, "session"),
            sidecar_image=image_id(engine, "proxy"),
            upstream=self._upstream,
            credential_of=lambda _probe, _session: scene.credential(
                Credential("api_key", credential)
            ),
            dollars=scene.dollars,
            rehearsal=True,
            model=MODEL,
            timeout=90.0,
            host_skills=frozenset(),
        )
        job = Job(
            line=laid.line,
            probe=probe.id,
            task=probe.task,
            answers=probe.answers,
            session=session,
            directory=self._directory / name / "session",
            uid=uid,
        )
        opened = open_session(engine, job, setting)
        opened.order = scene.order(opened.order)
        return Take(record(opened, job, setting), job.directory, credential)


def script_key(scene: str) -> str:
    return f"SCENE-{scene}"


def script_of(scenes: Mapping[str, Scene]) -> str:
    """The rehearsal script of all scenes; JSON, which a YAML reader takes."""
    return json.dumps(
        {
            script_key(name): {
                "turns": list(scene.turns),
                "subagents": [
                    {"match": match, "turns": list(turns)}
                    for match, turns in scene.subagents.items()
                ],
            }
            for name, scene in scenes.items()
        },
        ensure_ascii=False,
    )


@contextmanager
def open_stage(docker_host: str, directory: Path, scenes: Mapping[str, Scene]) -> Iterator[Stage]:
    engine = open_engine(docker_host)
    try:
        with rehearsal_network(
            engine,
            f"recorder-{os.getpid()}-{directory.name}",
            {DRIVER_LABEL: driver_identity()},
            image_id(engine, "recorder"),
            script_of(scenes),
        ) as upstream:
            stage = Stage(docker_host, upstream, directory, scenes)
            try:
                yield stage
            finally:
                stage.close()
    finally:
        engine.close()


@dataclass
class Cell:
    """A session container with a plain program in the harness's place, and no sidecar."""

    engine: Engine
    container: str
    attachment: Attachment
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def read_until(self, words: bytes) -> None:
        """Read its output until it holds the words. Fails where it ends first."""
        self.attachment.connection.settimeout(CELL_SECONDS)
        while words not in self.output:
            self._read()
            assert not self.attachment.ended, (words, bytes(self.output), bytes(self.errors))

    def end(self) -> int:
        """Its exit status, once its output has ended."""
        self.attachment.connection.settimeout(CELL_SECONDS)
        while not self.attachment.ended:
            self._read()
        return self.engine.wait(self.container, CELL_SECONDS)

    def _read(self) -> None:
        for stream, piece in self.attachment.read():
            target = self.output if stream == STDOUT else self.errors
            target += piece

    @property
    def outcome(self) -> dict[str, Any]:
        data = self.engine.get_file(self.container, OUTCOME_FILE, OUTCOME_LIMIT)
        assert data is not None
        outcome = json.loads(data)
        assert isinstance(outcome, dict)
        return outcome


@contextmanager
def open_cell(
    engine: Engine,
    name: str,
    argv: Sequence[str],
    *,
    files: Mapping[str, tuple[bytes, int]] | None = None,
    workspace_mode: int = 0o755,
    workspace_owner: int | None = None,
    request: Mapping[str, object] | None = None,
    uid: int = SESSION_UID,
) -> Iterator[Cell]:
    """Create, attach and start a cell; it is gone afterwards.

    ``files`` are root's; ``request`` replaces members of the engine's create request.
    """
    if workspace_owner is None:
        workspace_owner = uid
    label = f"recorder-{os.getpid()}-{re.sub('[^A-Za-z0-9]+', '-', name)}"
    labels = {DRIVER_LABEL: driver_identity(), "recorder.role": "check"}
    volume = f"{label}-socket"
    engine.create_volume(volume, labels)
    container: str | None = None
    try:
        made = session_container(image_id(engine, "session"), labels, volume, Limits())
        container = engine.create_container(f"{label}-cell", {**made, **(request or {})})
        engine.put(container, "/", iter([workspace_directory(workspace_owner, workspace_mode)]))
        engine.put(
            container,
            "/",
            control_files(
                argv=tuple(argv),
                environment=environment(),
                uid=uid,
                certificate="",
                placeholder=PLACEHOLDER_KEY,
            ),
        )
        if files:
            engine.put(container, "/", iter([archive_of(files)]))
        with attach(engine.docker_host, container) as attachment:
            engine.start(container)
            yield Cell(engine, container, attachment)
    finally:
        if container is not None:
            engine.remove_container(container)
        engine.remove_volume(volume)


def workspace_directory(owner: int, mode: int) -> bytes:
    gathered = io.BytesIO()
    with tarfile.open(fileobj=gathered, mode="w") as archive:
        member = tarfile.TarInfo("workspace")
        member.type, member.mode = tarfile.DIRTYPE, mode
        member.uid = member.gid = owner
        archive.addfile(member)
    return gathered.getvalue()


def replaced(**changes: Any) -> Callable[[Order], Order]:
    """A change of an order's members, for ``Scene.order``."""
    return lambda order: replace(order, **changes)

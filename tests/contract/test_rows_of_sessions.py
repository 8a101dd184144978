"""Rows A, G, M and N of the contract, each in a session of the real construction.

A program stands in the harness's place and prints a stream that the test wrote, so that what is
recorded of it is known. Guard, sidecar, attach and driver are the real ones.
"""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from msgspec import UNSET

from recorder.batch import recording
from recorder.batch.recording import Recorded, open_session, record
from recorder.batch.run import run_jobs
from recorder.engine.client import Engine, open_engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import CONFIGURATION_DIRECTORY
from recorder.transcript.contract import Artifact
from tests.contract.conftest import Run
from tests.recording.rig import (
    DEAD_ENGINE,
    EXAMPLES,
    PROBE,
    Rig,
    line_of,
    program_as_harness,
)
from tests.stream.streams import call, init, line, result

pytestmark = pytest.mark.engine

MARKER = "a-file-of-the-host"
SAID = "said by a server of the host"
DONE = init() + result("yes")
CAPPED = (
    init()
    + call("Read", {"file_path": "/workspace/a.md"})
    + result("yes", subtype="error_max_turns", is_error=True)
)
NAMED_OUTSIDE = (
    init()
    + call("Read", {"file_path": "/var/out/a.md"})
    + call(
        "Bash", {"command": "cat /var/out/a.md ../rel; find / -name x 2>/dev/null; ls /home /mnt"}
    )
    + call("Grep", {"pattern": "x", "path": "/workspace/docs"})
    + result("yes")
)

WRITES = """\
mkdir -p docs .claude/worktrees/w/docs .headwater/cache .claude/worktrees/w/.headwater
printf 'new SLU-DEC-0001' > docs/new.md
printf 'more' >> a.md
printf 'x' > .claude/worktrees/w/docs/new.md
touch b.md
printf 'x' > .headwater/cache/entry
printf 'x' > .headwater/capture-cost.jsonl
printf 'x' > .claude/worktrees/w/.headwater/entry
printf '<!-- headwater:generated -->\\nx' > docs/index.md
printf '# headwater:generated\\na: 1\\n' > docs/generated.yml
printf '{\\n "headwater:generated": true,\\n "a": 1}\\n' > docs/generated.json
printf 'one\\nheadwater:generated\\n' > docs/not-generated.md
rm gone.md
cat stream
"""


@dataclass(frozen=True)
class Case:
    """One session: its stream, the program that prints it, and how it ends."""

    stream: bytes = DONE
    program: str = "cat stream"
    max_turns: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    "exits-7": Case(program="cat stream; exit 7"),
    "asks-and-exits-7": Case(
        program='curl -s -m 5 -x "$HTTPS_PROXY" https://github.com/ -o /dev/null; exit 7'
    ),
    "exits-0-with-an-error": Case(init() + result("yes", is_error=True)),
    "capped": Case(CAPPED, "cat stream; exit 1", max_turns=80),
    "outside": Case(NAMED_OUTSIDE),
    "one-outside": Case(init() + call("Read", {"file_path": "/opt/x"}) + result("yes")),
    "mcp": Case(
        init()
        + call("mcp__headwater__route", {"task": "x"})
        + call("Read", {"file_path": "a.md"})
        + result("yes")
    ),
    "web": Case(init() + call("WebSearch", {"query": "x"}) + result("yes")),
    "no-hook": Case(),
    "hook": Case(
        init() + line(type="system", subtype="hook_started", hook_event="PreToolUse") + result("x"),
        'echo \'{"probe_session":"fixture-live"}\' > $RECORDER_LOG_DIR/a.jsonl; cat stream',
    ),
    "writes": Case(
        program=WRITES, files={"a.md": "a", "b.md": "b", "gone.md": "g", ".headwater/x": "x"}
    ),
}


@contextmanager
def server_of_the_host() -> Iterator[int]:
    """A server on the host's loopback; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(SAID.encode())

        do_CONNECT = do_GET  # noqa: N815 - the base class's own form

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Took:
    """A session that ended, with what it left."""

    recorded: Recorded
    directory: Path

    @property
    def text(self) -> str:
        return (self.directory / "record.md").read_text("utf-8")

    @property
    def reason(self) -> str:
        assert self.recorded.refusal is not None
        (reason,) = self.recorded.refusal.reasons
        return reason

    @property
    def produced(self) -> Mapping[str, Artifact]:
        event = self.recorded.event
        assert event is not None, self.recorded.refusal
        assert event.produced is not UNSET
        return {artifact.path: artifact for artifact in event.produced}

    def left(self, path: str) -> str:
        digest = self.produced[path].result.removeprefix("sha256:")
        return (self.directory / "produced" / digest).read_text("utf-8")


@pytest.fixture(scope="module")
def sessions(
    rig: Rig, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Took]:
    """Every case as one session, two at a time."""
    trees, out = tmp_path_factory.mktemp("trees"), tmp_path_factory.mktemp("out")
    script = (project / "tests/contract/rows_in_a_session.sh").read_text("utf-8")
    took: dict[str, Took] = {}
    (trees / f"{MARKER}-of-a-sibling").write_text("x")

    def ended(recorded: Recorded) -> None:
        took[recorded.job.session] = Took(recorded, recorded.job.directory)

    with server_of_the_host() as port, pytest.MonkeyPatch.context() as monkeypatch:
        program_as_harness(monkeypatch)
        inside = Case(
            program=f"sh rows.sh {MARKER} {port} 2>&1 >/dev/null; cat stream",
            files={"rows.sh": script},
        )
        jobs = []
        for name, case in {**CASES, "inside": inside}.items():
            tree = trees / name
            for path, content in {"stream": "", "a.md": "a", **case.files}.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_text(content)
            (tree / "stream").write_bytes(case.stream)
            given = replace(line_of(tree), max_turns=case.max_turns)
            jobs.append(rig.job(given, name, case.program, out))
        run_jobs(
            rig.engine.docker_host,
            jobs,
            rig.setting(),
            parallel=2,
            began=lambda _: None,
            ended=ended,
            stop=threading.Event(),
        )
    return took


def test_a10_a_harness_that_fails_is_10_and_its_own_status_is_said(
    sessions: Mapping[str, Took],
) -> None:
    took = sessions["exits-7"]
    assert took.recorded.code == ExitCode.HARNESS
    assert "the harness exited 7" in took.reason


def test_a11_what_its_proxy_refused_is_said_too(sessions: Mapping[str, Took]) -> None:
    took = sessions["asks-and-exits-7"]
    assert took.recorded.code == ExitCode.HARNESS
    assert "its proxy allowed no request, and refused 1 request to `github.com:443`" in took.reason


def test_a14_a_harness_that_exits_0_is_not_asked_further(sessions: Mapping[str, Took]) -> None:
    took = sessions["exits-0-with-an-error"].recorded
    assert took.code == ExitCode.DONE
    assert took.answer is None


def test_a13_n01_k23_a_capped_session_is_recorded_with_its_calls_and_no_answer(
    sessions: Mapping[str, Took],
) -> None:
    took = sessions["capped"]
    assert took.recorded.code == ExitCode.DONE
    assert took.recorded.event is not None
    assert took.recorded.event.answer is None
    assert took.recorded.event.calls is not UNSET
    assert [made.tool for made in took.recorded.event.calls] == ["Read"]
    assert "The session stopped at the turn cap of 80." in took.text
    assert (took.recorded.evidence.capped, took.recorded.evidence.max_turns) == (True, 80)
    assert "turn cap" not in sessions["no-hook"].text


def test_a19_the_identity_has_its_members_in_order(sessions: Mapping[str, Took]) -> None:
    block = sessions["no-hook"].text.partition("```yaml\n")[2].partition("```")[0]
    assert [text.split(": ")[0] for text in block.splitlines()] == [
        "model", "served_version", "tree", "lock", "selection", "read_set", "seed", "harness",
        "tier", "arm", "at", "cost_cents",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "found"),
    [
        pytest.param("G01", "", id="G01"),
        pytest.param("G02", "/workspace\nwritten\n", id="G02"),
        pytest.param("G03", "/session/log\n", id="G03"),
        pytest.param("G05", "", id="G05"),
        pytest.param("G07", "", id="G07"),
        pytest.param("G08", "/session/config\n/session/config\n", id="G08"),
        pytest.param("G14", "", id="G14"),
        pytest.param("G15", "", id="G15"),
    ],
)
def test_what_a_session_finds(row: str, found: str, sessions: Mapping[str, Took]) -> None:
    took = sessions["inside"]
    assert took.recorded.code == ExitCode.DONE, took.recorded.refusal
    assert took.left(f"found/{row}") == found


def test_g05_nothing_was_cloned_and_each_way_is_in_the_log(sessions: Mapping[str, Took]) -> None:
    took = sessions["inside"]
    assert not [path for path in took.produced if path.startswith("cloned")]
    kept = [path for path in took.directory.rglob("*") if path.is_file()]
    assert not [path for path in kept if SAID.encode() in path.read_bytes()]
    assert sum(asked.count for asked in took.recorded.evidence.egress.refused) >= 3


def test_g04_the_transcript_says_that_it_ran_confined_and_where(
    sessions: Mapping[str, Took],
) -> None:
    text = sessions["no-hook"].text
    assert "The session ran confined" in text
    assert f"`{CONFIGURATION_DIRECTORY}`" in text


def test_g22_the_prose_claims_what_the_construction_holds(sessions: Mapping[str, Took]) -> None:
    for took in sessions.values():
        if took.recorded.code != ExitCode.DONE:
            continue
        for words in (
            "no network of its own",
            "forwards to `api.anthropic.com` alone and reads each request whole",
            "a direct connection to any host is refused",
            "its workspace at `/workspace`",
            "No file of the host was in it",
        ):
            assert words in took.text
        prose = re.sub(r"```.*?```", "", took.text, flags=re.DOTALL)
        for words in ("reachable", "could not read", "One channel stays open"):
            assert words not in prose


PRODUCED = {
    "M01": "docs/new.md",
    "M02": "a.md",
    "M03": ".claude/worktrees/w/docs/new.md",
    "M15": "docs/not-generated.md",
}
NOT_PRODUCED = {
    "M04": "b.md",
    "M07-cache": ".headwater/cache/entry",
    "M07-file": ".headwater/capture-cost.jsonl",
    "M07-worktree": ".claude/worktrees/w/.headwater/entry",
    "M09": "docs/index.md",
    "M10": "docs/generated.yml",
    "M12": "docs/generated.json",
    "M16": "gone.md",
}


@pytest.mark.parametrize("row", PRODUCED)
def test_a_write_that_no_call_names_is_produced(row: str, sessions: Mapping[str, Took]) -> None:
    assert PRODUCED[row] in sessions["writes"].produced


@pytest.mark.parametrize("row", NOT_PRODUCED)
def test_a_change_that_is_no_artifact_is_not_produced(
    row: str, sessions: Mapping[str, Took]
) -> None:
    assert NOT_PRODUCED[row] not in sessions["writes"].produced


def test_m01_m02_the_artifacts_are_these_alone_with_what_they_cite(
    sessions: Mapping[str, Took],
) -> None:
    produced = sessions["writes"].produced
    assert sorted(produced) == sorted(PRODUCED.values())
    assert produced["docs/new.md"].cites == ("SLU-DEC-0001",)


def test_m14_the_log_directory_is_no_part_of_the_workspace(sessions: Mapping[str, Took]) -> None:
    assert sorted(sessions["hook"].produced) == []
    assert sessions["hook"].recorded.evidence.hook_log_lines == 1


OUTSIDE = (
    "The session named 3 paths outside its workspace that the confinement does not bind, ",
    "The session named 1 path outside its workspace that the confinement does not bind, ",
    "The session named 0 paths outside its workspace that the confinement does not bind, ",
)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("outside", OUTSIDE[0], id="N03"),
        pytest.param("one-outside", OUTSIDE[1], id="N07"),
        pytest.param("no-hook", OUTSIDE[2], id="N03-none"),
        pytest.param("mcp", "The session made 1 call to a tool of an MCP server.", id="N09"),
        pytest.param(
            "no-hook", "The session made 0 calls to a tool of an MCP server.", id="N09-none"
        ),
        pytest.param("web", "The session made 1 call to a web tool.", id="N14"),
        pytest.param(
            "hook", "Hooks wrote 1 line to its log directory, which is self-reported", id="N11"
        ),
        pytest.param("hook", "The stream shows hooks of the workspace: 1 of PreToolUse.", id="N13"),
        pytest.param(
            "no-hook", "Hooks wrote 0 lines to its log directory, which is self-reported", id="N12"
        ),
        pytest.param("no-hook", "The stream shows no hook of the workspace.", id="N12-stream"),
    ],
)
def test_a_count_is_a_sentence(name: str, sentence: str, sessions: Mapping[str, Took]) -> None:
    assert sentence in sessions[name].text


def test_n03_each_path_is_counted_once(sessions: Mapping[str, Took]) -> None:
    counts = sessions["outside"].recorded.evidence.counts
    assert counts.outside_paths == ("/var/out/a.md", "/home", "/mnt")


def test_g16_without_an_engine_nothing_runs(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The engine is the tool that confines; where it is missing (3), nothing runs unconfined."""
    monkeypatch.setenv("DOCKER_HOST", DEAD_ENGINE)
    ran = run(
        "record", "--corpus", EXAMPLES / "corpus", "--probe", PROBE, "--session", "s",
        "--out", tmp_path / "out", "--rehearse", EXAMPLES / "rehearsal.yaml",
    )  # fmt: skip
    assert ran.code == ExitCode.MISSING
    assert DEAD_ENGINE in ran.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@dataclass(frozen=True)
class LooseEngine(Engine):
    """An engine that gives a session container the host's network; it notes what it started."""

    started: list[str] = field(default_factory=list)

    def inspect(self, container: str) -> dict[str, object]:
        seen = super().inspect(container)
        if seen["Config"]["Labels"].get("recorder.role") == "session":
            seen["HostConfig"]["NetworkMode"] = "host"
        return seen

    def start(self, container: str) -> None:
        self.started.append(super().inspect(container)["Config"]["Labels"]["recorder.role"])
        super().start(container)


def of_session(engine: Engine, session: str) -> list[object]:
    label = f"recorder.session={session}"
    return [*engine.containers(label), *engine.volumes(label)]


def refused_before_its_start(rig: Rig, tmp_path: Path, name: str, **order: object) -> Refusal:
    """A session that the driver refuses (12), with nothing started and nothing left behind."""
    tree = tmp_path / "tree"
    tree.mkdir()
    engine = LooseEngine(rig.engine.docker_host, (plain := open_engine(rig.engine.docker_host)).api)
    job = rig.job(line_of(tree), name, "cat stream", tmp_path)
    try:
        session = open_session(engine, job, rig.setting())
        session.order = replace(session.order, **order)  # type: ignore[arg-type]
        with pytest.raises(Refusal) as refused:
            record(session, job, rig.setting())
    finally:
        plain.close()
    assert refused.value.code == ExitCode.CONFINEMENT
    assert engine.started in ([], ["sidecar"])
    assert of_session(rig.engine, name) == []
    return refused.value


def test_g17_an_engine_that_does_not_confine_is_refused_and_nothing_is_left(
    rig: Rig, tmp_path: Path
) -> None:
    refusal = refused_before_its_start(rig, tmp_path, "loose")
    assert refusal.reasons == (
        "the engine made a session container that is not confined: its network is host, not none",
    )


def test_g18_g19_a_sidecar_that_dies_at_its_start_is_refused_with_what_it_said(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = recording.Order

    def with_a_broken_policy(**members: object) -> recording.Order:
        return ordered(**{**members, "policy": "no: policy"})  # type: ignore[arg-type]

    monkeypatch.setattr(recording, "Order", with_a_broken_policy)
    refusal = refused_before_its_start(rig, tmp_path, "dies")
    (reason,) = refusal.reasons
    assert reason.startswith("the sidecar did not start: ")
    assert "policy" in reason

"""What a harness can print and how it can end: each its own refusal, with what it printed kept."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from recorder.batch.recording import Recorded, open_session, record
from recorder.batch.run import run_jobs
from recorder.evidence.document import Evidence
from recorder.refusal import ExitCode
from tests.recording.rig import Rig, line_of, program_as_harness
from tests.stream.streams import blocks, call, init, result

pytestmark = pytest.mark.engine

GOOD = init() + blocks({"type": "text", "text": "hello"}) + result("so\n\nyes")
CAPPED = (
    init()
    + call("Read", {"file_path": "/workspace/a.txt"})
    + result(None, subtype="error_max_turns", is_error=True)
)
PRINT = "cat stream; exit {status}"


@dataclass(frozen=True)
class Case:
    """A stream, or a program that prints one, and what must become of it."""

    stream: bytes
    code: ExitCode
    says: str
    status: int = 0
    program: str = PRINT


CASES: Mapping[str, Case] = {
    "nothing": Case(b"", ExitCode.CONFINEMENT, "the harness printed nothing"),
    "garbage": Case(b"Segmentation fault\n", ExitCode.CONFINEMENT, "line 1 is not JSON"),
    "a-list": Case(b"[1, 2]\n", ExitCode.CONFINEMENT, "line 1 is not a JSON object"),
    "not-utf8-at-first": Case(b"\xff\xfe\n" + GOOD, ExitCode.OBSERVATION, "line 1, is not UTF-8"),
    "not-utf8": Case(
        init() + b'{"type":"assistant","x":"\xc3\x28"}\n' + result(),
        ExitCode.OBSERVATION,
        "line 2, is not UTF-8",
    ),
    "no-init": Case(
        blocks({"type": "text", "text": "x"}) + result(),
        ExitCode.CONFINEMENT,
        "holds no init line (2 lines and none of them an init line)",
    ),
    "cut": Case(GOOD[:-9], ExitCode.OBSERVATION, "line 3, is cut after"),
    "no-result": Case(
        init() + blocks({"type": "text", "text": "x"}), ExitCode.OBSERVATION, "no result line"
    ),
    "exits-7": Case(GOOD, ExitCode.HARNESS, "the harness exited 7", status=7),
    "exits-7-mute": Case(b"", ExitCode.HARNESS, "the harness exited 7", status=7),
    "signalled": Case(GOOD, ExitCode.HARNESS, "exited 139", program="cat stream; kill -SEGV $$"),
    "api-error": Case(
        init() + result("API Error: 529", is_error=True, api_error_status=529),
        ExitCode.HARNESS,
        "its result line says 529",
        status=1,
    ),
    "bypass": Case(
        init(permissionMode="bypassPermissions") + result(),
        ExitCode.CONFINEMENT,
        "the permission mode bypassPermissions",
    ),
    "plugin": Case(
        init(plugins=[{"name": "mine", "path": "/home/somebody/plugin"}]) + result(),
        ExitCode.CONFINEMENT,
        "the plugin mine with the path /home/somebody/plugin",
    ),
    "server": Case(
        init(mcp_servers=[{"name": "foreign", "source": "user"}]) + result(),
        ExitCode.CONFINEMENT,
        "the MCP server foreign (source user)",
    ),
    "skill": Case(
        init(skills=["init", "a-skill-of-the-host"]) + result(),
        ExitCode.CONFINEMENT,
        "the skill a-skill-of-the-host",
    ),
    "memory": Case(
        init(memory_paths={"auto": "/root/.claude/memory/"}) + result(),
        ExitCode.CONFINEMENT,
        "the memory path /root/.claude/memory/",
    ),
    "routed": Case(
        init(served_by_anthropic=False) + result(),
        ExitCode.CONFINEMENT,
        "served_by_anthropic false",
    ),
    "no-cost": Case(
        init() + result("yes", total_cost_usd=None), ExitCode.OBSERVATION, "states no cost"
    ),
    "good": Case(GOOD, ExitCode.DONE, ""),
    "capped": Case(CAPPED, ExitCode.DONE, "", status=1),
    "stderr-apart": Case(
        GOOD,
        ExitCode.DONE,
        "",
        program="echo to-the-other >&2; cat stream; printf 'no end of line' >&2",
    ),
    # Every byte leaves in a write of its own, so that frames are as small as they get.
    "many-small-writes": Case(
        GOOD, ExitCode.DONE, "", program="dd if=stream bs=1 status=none; exit 0"
    ),
}


@pytest.fixture(scope="module")
def ended(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, tuple[Recorded, Path]]:
    """Every case run as one session of a batch, two at a time."""
    trees, out = tmp_path_factory.mktemp("trees"), tmp_path_factory.mktemp("out")
    jobs = []
    for name, case in CASES.items():
        tree = trees / name
        tree.mkdir()
        (tree / "stream").write_bytes(case.stream)
        (tree / "a.txt").write_text("a")
        program = case.program.format(status=case.status)
        jobs.append(rig.job(line_of(tree), name, program, out))
    found: dict[str, tuple[Recorded, Path]] = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        program_as_harness(monkeypatch)
        run_jobs(
            rig.engine.docker_host,
            jobs,
            rig.setting(),
            parallel=2,
            began=lambda _: None,
            ended=lambda recorded: found.update(
                {recorded.job.session: (recorded, recorded.job.directory)}
            ),
            stop=threading.Event(),
        )
    return found


@pytest.mark.parametrize("name", CASES)
def test_each_end_has_its_own_code_and_line_and_keeps_what_was_printed(
    name: str, ended: Mapping[str, tuple[Recorded, Path]]
) -> None:
    case, (recorded, directory) = CASES[name], ended[name]
    assert (directory / "raw.jsonl").read_bytes() == case.stream
    evidence = msgspec.json.decode((directory / "evidence.json").read_bytes(), type=Evidence)
    reasons = recorded.refusal.reasons if recorded.refusal else ()
    assert recorded.code == case.code, reasons
    if case.code == ExitCode.DONE:
        assert evidence.refusal is None
        assert (directory / "record.md").is_file()
        return
    assert evidence.refusal is not None
    assert evidence.refusal.code == case.code
    assert evidence.refusal.reasons == reasons
    assert len(reasons) == 1
    assert case.says in reasons[0]
    assert reasons[0].isprintable()
    assert f"session {name}" in reasons[0]
    assert not (directory / "record.md").exists()
    assert not (directory / "event.yaml").exists()


def test_a_turn_cap_is_recorded_and_has_no_answer(
    ended: Mapping[str, tuple[Recorded, Path]],
) -> None:
    recorded, _ = ended["capped"]
    assert recorded.evidence.exit_status == 1
    assert recorded.event is not None
    assert recorded.event.answer is None
    digest = f"sha256:{hashlib.sha256(b'a').hexdigest()}"
    assert [(c.tool, c.result) for c in recorded.event.calls] == [("Read", digest)]


def test_standard_error_is_kept_apart_byte_for_byte(
    ended: Mapping[str, tuple[Recorded, Path]],
) -> None:
    _, directory = ended["stderr-apart"]
    assert (directory / "stderr.log").read_bytes() == b"to-the-other\nno end of line"
    assert (directory / "raw.jsonl").read_bytes() == GOOD


def test_what_a_session_left_is_only_its_owner_s_to_read(
    ended: Mapping[str, tuple[Recorded, Path]],
) -> None:
    for _, directory in ended.values():
        assert directory.stat().st_mode & 0o777 == 0o700
        for path in directory.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_program_in_the_harness_s_place_is_not_believed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch, believed=False)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "stream").write_bytes(GOOD)
    job = rig.job(line_of(tree), "forged", "cat stream", tmp_path / "out")
    recorded = record(open_session(rig.engine, job, rig.setting()), job, rig.setting())
    assert recorded.refusal is not None
    assert recorded.refusal.code == ExitCode.WITNESSES
    assert (job.directory / "raw.jsonl").read_bytes() == GOOD
    assert not (job.directory / "record.md").exists()

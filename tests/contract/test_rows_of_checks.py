"""Findings, row by row, with the check in its container; and MCP servers asked for their tools."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import UNSET

from recorder.batch.batch import image_id
from recorder.batch.checking import Check, patched, run_check
from recorder.batch.recording import Recorded
from recorder.batch.run import run_jobs
from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.check import Program, run_program
from recorder.session.leftovers import DRIVER_LABEL, driver_identity
from recorder.session.mcp_tools import list_tools, tool_lister
from recorder.workspace.packing import pack
from tests.contract.conftest import Run
from tests.recording.rig import EXAMPLES, Rig, line_of, program_as_harness
from tests.stream.streams import call, init, result

pytestmark = pytest.mark.engine

LABELS = {DRIVER_LABEL: driver_identity()}

# A rule over two documents: one that names another is named by it.
RECIPROCAL = """\
import json, pathlib, re, sys
tree = pathlib.Path(sys.argv[1])
texts = {path: path.read_text() for path in tree.rglob("*.md")}
found = []
for path, text in texts.items():
    for name in re.findall(r"see (\\S+)", text):
        other = path.parent / name
        if path.name not in texts.get(other, ""):
            found.append({"path": str(path.relative_to(tree)), "rule": "link.reciprocal"})
        if text.startswith("!"):
            found.append({"path": str(path.relative_to(tree)), "rule": "a.mark"})
print(json.dumps(found))
sys.exit(bool(found))
"""
CHECK = "python3 -I {baseline}/check.py {workspace}"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """``base`` with the check, ``oracle`` with one.md that nobody links, ``ws`` to be written."""
    for name, content in {
        "base/check.py": RECIPROCAL,
        "oracle/docs/one.md": "one",
        "oracle/docs/two.md": "two",
        "ws/docs/one.md": "one, see two.md",
        # What a session wrote in the tools' place: it would find nothing, and is never run.
        "ws/check.py": "print('[]')",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.fixture
def checked(run: Run, trees: Path) -> Callable[..., Any]:
    """The artifacts of a transform with a check, by path."""

    def transform(*stream: bytes, more: tuple[str | Path, ...] = (), command: str = CHECK) -> Any:
        ran = run(
            "transform", "--probe", "P", "--session", "s", "--workspace", trees / "ws",
            "--baseline", trees / "base", "--check", command, *more,
            stdin=init() + b"".join(stream) + result(),
        )  # fmt: skip
        if ran.code:
            return ran
        (event,) = yaml.safe_load(ran.out)
        return {artifact["path"]: artifact for artifact in event["produced"]}

    return transform


def edit(path: Path | str) -> bytes:
    return call("Edit", {"file_path": str(path)})


def test_l25_l32_the_rules_over_an_absolute_path_inside_the_workspace(
    checked: Callable[..., Any], trees: Path
) -> None:
    (trees / "ws/docs/one.md").write_text("! see two.md, see two.md")
    (trees / "ws/docs/clean.md").write_text("clean")
    produced = checked(
        edit(trees / "ws/docs/one.md"),
        edit("docs/clean.md"),
        edit("/tmp/outside.md"),
        edit("docs/gone.md"),
    )
    assert produced["docs/one.md"]["findings"] == ["a.mark", "link.reciprocal"]
    assert produced["docs/clean.md"]["findings"] == []
    assert "findings" not in produced["/tmp/outside.md"]
    assert "findings" not in produced["docs/gone.md"]


def test_l33_one_half_of_a_pair_is_reported_over_that_half(
    checked: Callable[..., Any], trees: Path
) -> None:
    more = ("--oracle-tree", trees / "oracle")
    produced = checked(edit(trees / "ws/docs/one.md"), more=more)
    assert produced["docs/one.md"]["findings"] == ["link.reciprocal"]


def test_l34_both_halves_go_into_one_copy(checked: Callable[..., Any], trees: Path) -> None:
    (trees / "ws/docs/two.md").write_text("two, see one.md")
    more = ("--oracle-tree", trees / "oracle", "--produced", "docs/two.md")
    produced = checked(edit(trees / "ws/docs/one.md"), more=more)
    assert {path: artifact["findings"] for path, artifact in produced.items()} == {
        "docs/one.md": [],
        "docs/two.md": [],
    }
    # The tree itself is as it was.
    assert (trees / "oracle/docs/one.md").read_text() == "one"


def test_l35_the_untouched_oracle_tree_breaks_no_rule(engine: Engine, trees: Path) -> None:
    end = run_program(
        engine,
        image_id(engine, "session"),
        Program(
            argv=("/usr/bin/python3", "-I", "/baseline/check.py", "/workspace"),
            trees=(
                lambda uid: pack(trees / "oracle", uid, uid, prefix="workspace"),
                lambda uid: pack(trees / "base", uid, uid, prefix="baseline"),
            ),
        ),
        name="recorder-rows-l35",
        labels=LABELS,
    )
    assert (end.exit_code, end.stdout, end.fault) == (0, b"[]\n", "")


def test_l36_what_cannot_be_put_into_the_oracle_tree_is_a_refusal(run: Run, trees: Path) -> None:
    # The folder that a file of the patch lies in is a link to nowhere in the tree.
    (trees / "oracle/docs").rename(trees / "oracle/moved")
    (trees / "oracle/docs").symlink_to("/proc/1")
    ran = run(
        "transform", "--probe", "P", "--session", "s", "--workspace", trees / "ws",
        "--baseline", trees / "base", "--check", CHECK, "--oracle-tree", trees / "oracle",
        stdin=init() + edit(trees / "ws/docs/one.md") + result(),
    )  # fmt: skip
    assert ran.code == ExitCode.OBSERVATION, ran
    assert ran.out == ""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        pytest.param("no-such-tool {workspace}", "could not be run", id="L26"),
        pytest.param("sh -c 'echo []; exit 2' {workspace}", "it exited 2", id="L26-its-error"),
        pytest.param("sh -c 'echo []; kill -9 $$' {workspace}", "signal 9", id="L26-killed"),
        pytest.param("echo clean {workspace}", "no list of findings", id="L26-no-json"),
    ],
)
def test_a_check_that_could_not_run_gives_no_event(
    command: str, says: str, checked: Callable[..., Any], trees: Path
) -> None:
    ran = checked(edit(trees / "ws/docs/one.md"), command=command)
    assert (ran.code, ran.out) == (ExitCode.OBSERVATION, "")
    assert says in ran.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--check", "true {workspace}"), "--workspace"),
        (("--baseline", "."), "--check"),
        (("--workspace", ".", "--check", "true"), "{workspace}"),
        (("--workspace", ".", "--check", "true {workspace} {baseline}"), "--baseline"),
        (("--workspace", ".", "--check", "'"), "quotation"),
    ],
    ids=["no-workspace", "no-check", "names-no-workspace", "no-baseline", "no-words"],
)
def test_options_that_say_nothing_alone_are_usage(
    options: tuple[str, ...], says: str, run: Run
) -> None:
    ran = run("transform", "--probe", "P", "--session", "s", *options, stdin=init() + result())
    assert ran.code == ExitCode.USAGE
    assert says in ran.err


def test_a_check_that_does_not_end_is_killed_and_said_to_be(engine: Engine) -> None:
    end = run_program(
        engine,
        image_id(engine, "session"),
        Program(argv=("/bin/sh", "-c", "echo []; sleep 60"), trees=(), seconds=0.5),
        name="recorder-rows-deadline",
        labels=LABELS,
    )
    assert (end.exit_code, end.timed_out) == (None, True)
    assert "0.5 s" in end.fault


WHERE = """\
import json, os, socket
found = {"directory": os.getcwd(), "environment": sorted(os.environ), "uid": os.getuid(),
         "socket": os.path.exists("/run/recorder/proxy.sock"), "groups": os.getgroups()}
found["interfaces"] = [name for _, name in socket.if_nameindex()]
found["routes"] = open("/proc/net/route").read().splitlines()[1:]
found["capabilities"] = [line.split()[1] for line in open("/proc/self/status") if "Cap" in line]
found["home"] = os.listdir(os.environ["HOME"])
print(json.dumps(found))
"""


def test_a_check_has_no_way_out_no_credential_and_starts_outside_every_tree(
    engine: Engine,
) -> None:
    end = run_program(
        engine,
        image_id(engine, "session"),
        Program(argv=("/usr/bin/python3", "-I", "-c", WHERE), trees=()),
        name="recorder-rows-where",
        labels=LABELS,
    )
    found = json.loads(end.stdout)
    assert found["directory"] == "/"
    assert not [name for name in found["environment"] if "PROXY" in name.upper() or "KEY" in name]
    assert (found["interfaces"], found["routes"], found["socket"]) == (["lo"], [], False)
    assert (found["uid"], found["groups"], found["home"]) == (1000, [], [])
    assert {int(value, 16) for value in found["capabilities"]} == {0}


def declared(trees: Path, over: str) -> Check:
    command = ("python3", "-I", "{baseline}/check.py", "{workspace}")
    return Check(command=command, baseline=trees / "base", digest="sha256:b", over=over)


# A session that patches one half, rewrites the tools in its workspace and takes a file away.
PATCH = "printf 'one, see two.md' > docs/one.md; rm -f docs/old.md; echo 'print([])' > check.py; "
BOTH = PATCH + "printf 'two, see one.md' > docs/two.md; "


@pytest.fixture
def recorded(
    rig: Rig, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, Recorded]:
    """Sessions with a check: one half of a pair, both, nothing, and a check that is broken."""
    program_as_harness(monkeypatch)
    (trees / "base/docs").mkdir()
    found: dict[str, Recorded] = {}
    jobs = []
    for name, program, over, command in (
        ("half", PATCH, "workspace", None),
        ("both", BOTH, "corpus", None),
        ("nothing", "", "workspace", None),
        ("broken", PATCH, "workspace", ("false", "{workspace}")),
    ):
        tree = trees / f"tree-{name}"
        (tree / "docs").mkdir(parents=True)
        for path, content in {"docs/one.md": "one", "docs/two.md": "two"}.items():
            (tree / path).write_text(content)
        (tree / "docs/old.md").write_text("see nowhere.md")
        (tree / "stream").write_bytes(init() + result("yes"))
        (tree / "check.py").write_text(RECIPROCAL)
        check = declared(trees, over)
        line = replace(
            line_of(tree), check=check if command is None else replace(check, command=command)
        )
        jobs.append(rig.job(line, name, f"{program} cat stream", tmp_path / "out"))
    run_jobs(
        rig.engine.docker_host,
        jobs,
        rig.setting(),
        parallel=2,
        began=lambda _: None,
        ended=lambda ended: found.update({ended.job.session: ended}),
        stop=threading.Event(),
    )
    return found


def findings_of(recorded: Recorded) -> dict[str, object]:
    assert recorded.event is not None, recorded.refusal
    assert recorded.event.produced is not UNSET
    return {artifact.path: artifact.findings for artifact in recorded.event.produced}


def test_a_recorded_session_is_checked_with_tools_that_it_cannot_reach(
    recorded: Mapping[str, Recorded],
) -> None:
    half = recorded["half"]
    assert findings_of(half) == {"check.py": (), "docs/one.md": ("link.reciprocal",)}
    check = half.evidence.check
    assert check is not None
    assert (check.exit_code, check.timed_out, check.findings, check.fault) == (1, False, 1, None)
    assert check.command == ("python3", "-I", "{baseline}/check.py", "{workspace}")
    # docs/old.md was taken away, and the tree that was checked did not have it.
    both = recorded["both"]
    assert findings_of(both) == {"check.py": (), "docs/one.md": (), "docs/two.md": ()}
    assert both.evidence.check is not None
    assert (both.evidence.check.over, both.evidence.check.exit_code) == ("corpus", 0)
    nothing = recorded["nothing"]
    assert findings_of(nothing) == {}
    assert nothing.evidence.check is not None
    assert nothing.evidence.check.exit_code is None
    broken = recorded["broken"]
    assert broken.code == ExitCode.OBSERVATION
    assert broken.evidence.check is not None
    assert broken.evidence.check.findings is None
    assert broken.evidence.check.fault is not None
    assert broken.event is None


@dataclass(frozen=True)
class FailingEngine(Engine):
    """An engine that goes away when a check is to be made."""

    def create_container(self, name: str, request: Mapping[str, object]) -> str:
        raise ConnectionError(f"the engine went away from {name} with {len(request)} members")


def test_an_engine_that_fails_under_a_check_is_a_reason_and_loses_nothing(
    engine: Engine, trees: Path
) -> None:
    check = declared(trees, "workspace")
    end = run_check(
        FailingEngine(engine.docker_host, engine.api),
        "image",
        check,
        patched(trees / "ws"),
        name="recorder-rows-failing",
        labels=LABELS,
    )
    assert end.findings is None
    assert end.refusal is not None
    assert end.refusal.code == ExitCode.OBSERVATION
    assert end.record.exit_code is None
    assert "the engine went away" in str(end.record.fault)


def test_what_decides_a_check_is_its_identity(trees: Path) -> None:
    check = declared(trees, "workspace")
    others = [
        replace(check, over="corpus"),
        replace(check, digest="sha256:c"),
        replace(check, command=("other", "{workspace}")),
    ]
    assert len({each.identity for each in (check, *others)}) == 4
    assert replace(check, seconds=1.0, baseline=None).identity == check.identity


def listed(engine: Engine, tree: Path) -> Mapping[str, object]:
    lister = tool_lister(
        engine, image_id(engine, "session"), name="recorder-rows-mcp", labels=LABELS
    )
    return lister(tree)


def test_the_tools_of_the_example_with_every_text_about_them(engine: Engine) -> None:
    tools = list_tools(
        engine,
        image_id(engine, "session"),
        EXAMPLES / "corpus",
        name="recorder-rows-mcp",
        labels=LABELS,
    )
    assert [tool.harness_name for tool in tools] == [
        "mcp__documents__list_documents",
        "mcp__documents__read_document",
    ]
    assert tools[0].description.startswith("List the identifier")
    assert "Only documents of this status." in tools[0].texts
    assert "status" in tools[0].texts


# Tells what only a server can say, after a notification, a blank line and a second page.
SERVER = """\
import json, os, sys
first = {"name": "first", "inputSchema": {"enum": sys.argv[1:]}}
pages = {None: {"tools": [first], "nextCursor": "2"}, "2": {"tools": [{"name": "second"}]}}
if not sys.argv[1:]:
    pages = {None: {"tools": []}}
started = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x"},
           "instructions": os.environ.get("WORDS")}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    page = (asked.get("params") or {}).get("cursor")
    said = started if asked["method"] == "initialize" else pages[page]
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message"}), end="\\n\\n")
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""


def declare(tree: Path, **servers: object) -> Path:
    tree.mkdir()
    (tree / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tree / "server.py").write_text(SERVER)
    return tree


def test_pages_instructions_environment_and_variables_of_a_server(
    engine: Engine, tmp_path: Path
) -> None:
    server = {
        "command": "python3",
        "args": ["-I", "${CLAUDE_PROJECT_DIR}/server.py", "${NONE:-a default}"],
        "env": {"WORDS": "words of the server"},
    }
    texts = listed(engine, declare(tmp_path / "tree", one=server))
    assert list(texts) == ["mcp__one", "mcp__one__first", "mcp__one__second"]
    assert texts["mcp__one"] == ("words of the server",)
    assert "a default" in texts["mcp__one__first"]  # type: ignore[operator]


def test_p20_every_server_that_lists_no_tool_is_refused_and_named(
    engine: Engine, tmp_path: Path
) -> None:
    tree = declare(
        tmp_path / "tree",
        ends={"command": "sh", "args": ["-c", "echo a reason >&2"]},
        far={"type": "http", "url": "https://mcp.example.test/"},
        missing={"command": "no-such-server"},
        none={"command": "python3", "args": ["-I", "server.py"]},
        prints={"command": "sh", "args": ["-c", "echo hello; cat"]},
        unset={"command": "${A_VARIABLE_OF_NO_SESSION}"},
    )
    with pytest.raises(Refusal) as refused:
        listed(engine, tree)
    assert refused.value.code == ExitCode.INSTRUMENT
    for reason, (server, why) in zip(
        refused.value.reasons,
        {
            "ends": "a reason",
            "far": "is not started by a command",
            "missing": "could not be started",
            "none": "its list is empty",
            "prints": "which is no message",
            "unset": "A_VARIABLE_OF_NO_SESSION",
        }.items(),
        strict=True,
    ):
        assert f"the MCP server {server} lists no tool: " in reason
        assert why in reason


def test_a_tree_without_servers_is_not_asked(tmp_path: Path) -> None:
    assert list_tools(None, "", tmp_path, name="x", labels={}) == ()  # type: ignore[arg-type]

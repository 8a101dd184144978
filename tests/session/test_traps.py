"""A workspace full of files that a careless start would read, import, source or run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from recorder.engine.client import Engine
from tests.session.stage import Scene, Stage, bash, open_cell, text, turn

# Each trap leaves an empty file that says which it was and under whose uid it ran, in a
# directory that root, the forwarder and the session can all write to.
PYTHON_TRAP = """\
import posix
posix.close(posix.open("/tmp/trap {name} %d" % posix.getuid(), posix.O_CREAT | posix.O_WRONLY))
"""
SHELL_TRAP = """\
#!/bin/sh
: >"/tmp/trap {name} $(/usr/bin/id -u)"
"""
SCRIPT_TRAP = """\
require("fs").writeFileSync(`/tmp/trap {name} ${{process.getuid()}}`, "")
"""

# What the guard and the forwarder import, and what an interpreter imports by itself.
MODULES = (
    "ctypes",
    "encodings",
    "forwarder",
    "guard",
    "json",
    "os",
    "resource",
    "select",
    "signal",
    "site",
    "sitecustomize",
    "socket",
    "sys",
    "threading",
    "time",
    "typing",
    "usercustomize",
)
# What the guard starts, what those start, and what a shell looks for in its directory.
PROGRAMS = (
    ".bash_profile",
    ".bashrc",
    ".envrc",
    ".profile",
    "bash",
    "claude",
    "env",
    "forwarder.py",
    "guard.py",
    "id",
    "ldd",
    "node",
    "python",
    "python3",
    "rg",
    "sh",
)


def traps(prefix: str = "") -> dict[str, str]:
    """The traps below a directory, by path."""
    found: dict[str, str] = {}
    for module in MODULES:
        found[f"{module}.py"] = PYTHON_TRAP.format(name=f"{module}.py")
    for program in PROGRAMS:
        if not program.endswith(".py"):
            found[program] = SHELL_TRAP.format(name=program)
    found["encodings/__init__.py"] = PYTHON_TRAP.format(name="encodings")
    found["preload.js"] = SCRIPT_TRAP.format(name="preload.js")
    found["python.pth"] = "import os; open('/tmp/trap python.pth', 'w')\n"
    found["pyvenv.cfg"] = "home = /workspace\ninclude-system-site-packages = true\n"
    turned = "http://127.0.0.1:9"
    for name in (".env", ".env.local", ".env.production"):
        found[name] = (
            f"ANTHROPIC_BASE_URL={turned}\nHTTPS_PROXY={turned}\nhttps_proxy={turned}\n"
            "ANTHROPIC_API_KEY=sk-ant-api03-of-the-trap\nBUN_OPTIONS=--preload=./preload.js\n"
            "NODE_OPTIONS=--require=./preload.js\nPYTHONPATH=/workspace\n"
            "PYTHONSTARTUP=/workspace/socket.py\nBASH_ENV=/workspace/.bashrc\nENV=/workspace/.profile\n"
        )
    found["bunfig.toml"] = 'preload = ["./preload.js"]\n[run]\npreload = ["./preload.js"]\n'
    found["package.json"] = json.dumps(
        {
            "name": "trap",
            "type": "commonjs",
            "main": "preload.js",
            "scripts": {"preinstall": "node preload.js", "start": "node preload.js"},
            "bin": {"claude": "preload.js"},
        }
    )
    found["tsconfig.json"] = json.dumps(
        {"compilerOptions": {"paths": {"*": ["./preload.js"]}, "baseUrl": "."}}
    )
    return {prefix + path: content for path, content in found.items()}


@pytest.fixture(scope="module")
def scenes() -> Mapping[str, Scene]:
    files = traps()
    return {
        "traps": Scene(
            files=files,
            executable=frozenset(files),
            turns=(
                turn(bash("ls -1 /tmp/ | grep '^trap' || echo none")),
                turn(bash("curl -sS -m 5 -o /dev/null -w '%{http_connect}' https://example.com/")),
                # The traps are live: what a session runs itself does fall into them.
                turn(bash("/usr/bin/python3 -c 'import socket'; ls -1 /tmp/ | grep '^trap'")),
                turn(text("done")),
            ),
        ),
    }


def test_no_trap_is_sprung_by_what_starts_a_session(stage: Stage) -> None:
    take = stage.take("traps").whole()
    assert take.results[0].strip() == "none"


def test_the_forwarder_works_among_traps(stage: Stage) -> None:
    assert "403" in stage.take("traps").whole().results[1]


def test_the_session_is_recorded_as_usual_among_traps(stage: Stage) -> None:
    take = stage.take("traps").whole()
    assert take.recorded.answer == "done"
    assert (take.directory / "stderr.log").read_bytes() == b""
    decisions = [line for line in take.egress if line["kind"] == "decision"]
    assert sum(line["decision"] == "allowed" for line in decisions) == 4


def test_the_traps_are_live(stage: Stage) -> None:
    take = stage.take("traps").whole()
    mine = take.recorded.job.uid
    sprung = {line for line in take.results[2].splitlines() if line.startswith("trap")}
    assert f"trap socket.py {mine}" in sprung
    # Whatever a session springs, it springs as itself.
    assert {line.rpartition(" ")[2] for line in sprung} == {str(mine)}


@pytest.fixture(scope="module")
def trapped() -> dict[str, tuple[bytes, int]]:
    """The traps as a cell's files; in a container's root directory too, where a guard starts."""
    laid = {**traps("workspace/"), **traps()}
    return {path: (content.encode(), 0o755) for path, content in laid.items()}


LOOK = "import os; print(sorted(n for n in os.listdir('/tmp') if n.startswith('trap')))"


def test_nothing_runs_as_root_or_forwarder_even_with_traps_where_the_guard_starts(
    engine: Engine, trapped: dict[str, tuple[bytes, int]]
) -> None:
    argv = ["/usr/bin/python3", "-I", "-S", "-c", LOOK]
    with open_cell(engine, "traps", argv, files=trapped) as cell:
        assert cell.end() == 0
    assert bytes(cell.output) == b"[]\n", (bytes(cell.output), bytes(cell.errors))


@pytest.mark.parametrize(
    "careless",
    [
        # A start script that runs one line of Python in the workspace.
        "python3 -c 'import socket'",
        # A guard with the interpreter's usual search path.
        "PYTHONPATH=. python3 /opt/recorder/guard.py",
        # A program looked for in the directory it starts from.
        "PATH=.:$PATH; id",
    ],
)
def test_a_careless_start_springs_them_as_root(
    engine: Engine, trapped: dict[str, tuple[bytes, int]], careless: str
) -> None:
    start = ["/bin/sh", "-c", f"cd /workspace; {careless}; cd /tmp; echo trap*"]
    request = {"Entrypoint": start}
    with open_cell(engine, "careless", ["/bin/true"], files=trapped, request=request) as cell:
        cell.end()
    assert re.search(rb"trap \S+ 0\b", cell.output), (cell.output, cell.errors)

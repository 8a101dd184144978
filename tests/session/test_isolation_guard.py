"""What the guard does for whatever runs in the harness's place: status, signals, ends, orphans."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager

import pytest

from recorder.engine.client import Engine
from recorder.session.harness import environment
from tests.session.stage import Cell, open_cell

READY = b"ready\n"


def program(engine: Engine, name: str, source: str) -> AbstractContextManager[Cell]:
    return open_cell(engine, name, ["/usr/bin/python3", "-I", "-c", source])


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("sys.exit(0)", 0, 0),
        ("sys.exit(7)", 7, 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, -9),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, -15),
    ],
)
def test_the_containers_status_is_the_harness_own(
    engine: Engine, ending: str, status: int, said: int
) -> None:
    with program(engine, f"status-{status}", f"import os, signal, sys; {ending}") as cell:
        assert cell.end() == status
        assert cell.outcome["stage"] == "harness"
        assert cell.outcome["exit"] == said
        assert cell.outcome["ended"] >= cell.outcome["started"]


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_to_the_container_reaches_the_harness(engine: Engine, name: str) -> None:
    source = f"""
import signal, sys
def leave(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(5)
signal.signal(signal.SIG{name}, leave)
print("ready", flush=True)
while True:
    signal.pause()
"""
    with program(engine, f"signal-{name}", source) as cell:
        cell.read_until(READY)
        engine.kill(cell.container, name)
        assert cell.end() == 5
    assert bytes(cell.output) == READY + f"got SIG{name}\n".encode()


def test_a_signal_that_the_harness_does_not_catch_ends_it(engine: Engine) -> None:
    source = "import time; print('ready', flush=True); time.sleep(60)"
    with program(engine, "uncaught", source) as cell:
        cell.read_until(READY)
        engine.kill(cell.container, "TERM")
        assert cell.end() == 143
        assert cell.outcome["exit"] == -15


def test_orphans_are_reaped(engine: Engine) -> None:
    source = """
import os, time
for _ in range(3):
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(3)
        os._exit(0)
    os.wait()
    os.close(read)
    os.close(write)
def states():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = open(f"/proc/{entry}/stat").read()
            except OSError:
                continue
            found.append(stat.rpartition(")")[2].split()[0])
    return found
until = time.monotonic() + 10
# Left at the end: the guard, the forwarder and this process.
while len(states()) > 3 and time.monotonic() < until:
    time.sleep(0.01)
print(sorted(states()), flush=True)
"""
    with program(engine, "orphans", source) as cell:
        assert cell.end() == 0
        assert cell.outcome["reaped"] == 3
    assert b"Z" not in cell.output
    assert cell.output.count(b"'") == 2 * 3


def test_the_end_of_the_harness_ends_what_it_left_behind(engine: Engine) -> None:
    source = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)
sys.exit(0)
"""
    began = time.monotonic()
    with program(engine, "left-behind", source) as cell:
        assert cell.end() == 0
    assert time.monotonic() - began < 10


def test_the_harness_standard_input_is_empty(engine: Engine) -> None:
    source = "import os, sys; print(os.readlink('/proc/self/fd/0'), sys.stdin.buffer.read())"
    with program(engine, "stdin", source) as cell:
        cell.attachment.send(b"a word on the lifeline\n")
        assert cell.end() == 0
    assert bytes(cell.output) == b"/dev/null b''\n"


def test_the_harness_has_three_descriptors_and_leads_its_own_session(engine: Engine) -> None:
    source = """
import os
mine = os.listdir("/proc/self/fd")
print([fd for fd in mine if os.path.exists(f"/proc/self/fd/{fd}")])
print(os.getsid(0) == os.getpid(), os.getcwd(), oct(os.umask(0)))
"""
    with program(engine, "descriptors", source) as cell:
        assert cell.end() == 0
    assert bytes(cell.output) == b"['0', '1', '2']\nTrue /workspace 0o22\n"


def test_nothing_of_the_engine_is_in_the_harness_environment(engine: Engine) -> None:
    source = "import json, os; print(json.dumps(dict(os.environ)))"
    with program(engine, "environment", source) as cell:
        assert cell.end() == 0
    assert json.loads(cell.output) == environment()


def test_the_end_of_the_lifeline_ends_the_container(engine: Engine) -> None:
    source = """
import signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
    with program(engine, "lifeline", source) as cell:
        cell.read_until(READY)
        cell.attachment.close()
        closed = time.monotonic()
        assert engine.wait(cell.container, 10) == 137
        assert time.monotonic() - closed < 1.0
        assert cell.outcome["stage"] == "lifeline"


def test_a_harness_that_is_missing_is_said_to_be(engine: Engine) -> None:
    with open_cell(engine, "missing", ["/opt/harness/nothing"]) as cell:
        assert cell.end() == 127
        assert cell.outcome["stage"] == "start"
        assert "/opt/harness/nothing" in cell.outcome["reason"]
    assert cell.output == b""


def test_a_workspace_that_the_session_cannot_enter_is_said_to_be(engine: Engine) -> None:
    argv = ["/usr/bin/python3", "-I", "-c", "print('ran')"]
    with open_cell(engine, "enter", argv, workspace_mode=0o700, workspace_owner=0) as cell:
        assert cell.end() == 127
        assert cell.outcome["stage"] == "enter"
        assert "Permission denied" in cell.outcome["reason"]
    assert cell.output == b""


def test_a_guard_without_orders_runs_nothing(engine: Engine) -> None:
    broken = {"etc/recorder/session.json": (b"{", 0o600)}
    with open_cell(engine, "orders", ["/bin/true"], files=broken) as cell:
        assert cell.end() == 127
        assert cell.outcome["stage"] == "guard"
    assert cell.output == b""
    assert b"recorder guard" in cell.errors

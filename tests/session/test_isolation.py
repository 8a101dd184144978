"""From inside a session: nothing but the socket, the workspace and the image's own files."""

from __future__ import annotations

import json
import platform
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recorder.refusal import ExitCode
from recorder.session.container import FORWARDER_UID, SESSION_UID
from recorder.session.harness import environment, pinned_routes
from tests.session.stage import (
    Scene,
    Stage,
    bash,
    replaced,
    script_key,
    text,
    turn,
    workspace_directory,
)


@pytest.fixture(scope="module")
def scenes(project: Path) -> Mapping[str, Scene]:
    survey = (project / "tests/session/inside/survey.py").read_bytes()
    return {
        "survey": Scene(
            files={"survey.py": survey},
            turns=(
                turn(
                    bash(
                        "python3 -I survey.py survey.json rehearsal-"
                        f"{script_key('survey')} isolation-survey 2>&1"
                    )
                ),
                turn(text("done")),
            ),
        ),
        "shut": Scene(
            turns=(turn(text("done")),),
            order=replaced(workspace=lambda _uid: iter([workspace_directory(0, 0o700)])),
        ),
        "no-harness": Scene(
            turns=(turn(text("done")),), order=replaced(argv=("/opt/harness/other", "-p"))
        ),
    }


@pytest.fixture(scope="module")
def survey(stage: Stage) -> dict[str, Any]:
    """What a Bash call of a real session found."""
    take = stage.take("survey").whole()
    assert take.recorded.answer == "done", take.results
    found = json.loads(take.produced("survey.json"))
    assert isinstance(found, dict)
    return found


def test_the_only_interface_is_lo_and_it_leads_nowhere(survey: dict[str, Any]) -> None:
    assert survey["interfaces"] == ["lo"]
    assert survey["routes"] == []
    # The kernel's own entry of an absent route, on lo, is what a namespace without IPv6 shows.
    assert {row.split()[-1] for row in survey["routes6"]} <= {"lo"}
    assert survey["addresses6"] in ("", "ENOENT")
    assert survey["loopback6"] in ("EADDRNOTAVAIL", "EAFNOSUPPORT")


def test_no_name_resolves(survey: dict[str, Any]) -> None:
    assert survey["resolver"] == ""
    assert set(survey["names"].values()) == {"gaierror"}
    named = [line.split() for line in survey["hosts"].splitlines() if line.strip()]
    assert {line[0] for line in named} <= {"127.0.0.1", "::1"}, survey["hosts"]


def test_no_address_but_loopback_is_reached(survey: dict[str, Any]) -> None:
    loopback = {name for name in survey["connections"] if name.startswith("127.")}
    for name, result in survey["connections"].items():
        assert result == ("ECONNREFUSED" if name in loopback else "ENETUNREACH"), name
    assert set(survey["datagrams"].values()) == {"ENETUNREACH"}
    assert "done" not in survey["families"].values(), survey["families"]


def test_only_the_forwarder_and_the_sidecars_socket_answer(survey: dict[str, Any]) -> None:
    assert survey["listening"] == [["tcp", "0100007F", 3128]]
    assert set(survey["unix"]) == {"/run/recorder/proxy.sock"}
    assert survey["proxy"] == "HTTP/1.1 403 Forbidden"
    assert survey["socket"] == "HTTP/1.1 403 Forbidden"
    assert survey["socket_directory"] == {
        "create": "EROFS",
        "remove": "EROFS",
        "holds": ["proxy.sock"],
    }


PSEUDO = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "devtmpfs", "overlay"}
ENGINES_OWN = {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}


def test_no_file_of_the_host_is_mounted(survey: dict[str, Any]) -> None:
    for mount in survey["mounts"]:
        point, kind = mount[4], mount[mount.index("-") + 1]
        assert (
            kind in PSEUDO
            or point in {*ENGINES_OWN, "/run/recorder", "/"}
            # The engine binds its own device nodes where it has no devtmpfs of its own.
            or point.startswith("/dev/")
        ), mount


def test_the_mount_table_names_neither_session_nor_arm(survey: dict[str, Any]) -> None:
    # A path of a volume is in plain sight there, and a session that reads its own arm in it
    # is no longer the one that was to be measured.
    assert "survey" not in json.dumps(survey["mounts"])
    assert "survey" not in survey["host"]["/proc/mounts"]


def test_the_hosts_directories_are_not_there(survey: dict[str, Any]) -> None:
    absent = {"ENOENT", "EACCES"}
    for path in ("/home", "/mnt", "/media", "/srv", "/root", "/var/log/recorder"):
        assert survey["directories"][path] in (*absent, []), path
    assert survey["directories"]["/opt"] == ["harness", "recorder"]


def test_the_host_is_named_nowhere(survey: dict[str, Any]) -> None:
    assert survey["uname"][1] == "session"
    assert survey["host"]["/etc/hostname"] == "session\n"
    assert survey["host"]["/proc/sys/kernel/hostname"] == "session\n"
    for path in ("/proc/cmdline", "/proc/partitions", "/proc/swaps"):
        assert survey["host"][path] in ("", "EACCES", "ENOENT"), path
    assert survey["host"]["/etc/machine-id"] in ("", "ENOENT")
    # Whole words: a short name would be found in a longer word by chance.
    seen = set(re.findall(r"[\w.-]+", json.dumps([survey["environment"], survey["host"]])))
    assert not seen & ({platform.node()} - {"localhost", "session"})


READ_ELSEWHERE = {"/proc/cmdline": {"done", "EACCES", "ENOENT"}}


def test_what_is_the_recorders_own_is_not_read(survey: dict[str, Any]) -> None:
    for path, result in survey["opened"].items():
        assert result in READ_ELSEWHERE.get(path, {"EACCES", "ENOENT", "EPERM"}), path


def test_nothing_of_the_image_is_written(survey: dict[str, Any]) -> None:
    refusals = {"EACCES", "EPERM", "EROFS", "ENOENT", "ETXTBSY"}
    for path, result in {**survey["replaced"], **survey["created"]}.items():
        assert result in refusals, path
    assert {survey["chmod"], survey["rename"]} <= refusals


# What a session may write to: its own directories, and the kernel's that hold nothing.
ITS_OWN = ("/workspace", "/session/config", "/session/log", "/tmp", "/dev/shm", "/dev/mqueue")
SHARED_SCRATCH = {"/var/tmp", "/var/lock", "/run/lock"}
NODES = {"full", "null", "ptmx", "random", "tty", "urandom", "zero"}


def test_only_its_own_directories_are_writable(survey: dict[str, Any]) -> None:
    others = [
        path
        for path in survey["writable"]
        if not any(path == own or path.startswith(own + "/") for own in ITS_OWN)
        and path not in SHARED_SCRATCH
        and path.rpartition("/")[2] not in NODES
    ]
    # Writing to a socket is connecting to it.
    assert others == ["/run/recorder/proxy.sock"]
    assert {path.rpartition("/")[2] for path in survey["devices"]} <= NODES
    assert survey["device"] in ("EPERM", "ENOSYS")
    assert survey["privileged"] == []


def test_no_capability_is_left_in_any_set(survey: dict[str, Any]) -> None:
    status = survey["status"]
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Groups"].split() == []
    assert len(set(status["Uid"].split())) == len(set(status["Gid"].split())) == 1
    assert int(status["Uid"].split()[0]) >= 1000
    assert survey["setuid"] == survey["setgroups"] == "EPERM"


def test_processes_of_other_users_are_out_of_reach(survey: dict[str, Any]) -> None:
    mine = int(survey["status"]["Uid"].split()[0])
    others = {pid: seen for pid, seen in survey["processes"].items() if seen["uid"] != mine}
    assert {seen["effective"] for seen in others.values() if seen["effective"] != str(mine)} == {
        "0",
        str(FORWARDER_UID + mine - SESSION_UID),
    }
    assert set(survey["killed"].values()) == {"EPERM"}
    assert len(survey["killed"]) == 2
    for pid, seen in others.items():
        for what in ("environ", "mem", "fd", "root", "cwd"):
            assert seen[what] == "EACCES", (pid, what)
        if seen["effective"] != str(mine):
            assert seen["signal"] == "EPERM", pid


def test_the_harness_is_out_of_reach(survey: dict[str, Any]) -> None:
    # A child bears the harness's name until its exec, and never before the harness is there.
    named = {
        int(pid): seen for pid, seen in survey["processes"].items() if seen["comm"] == "claude"
    }
    harness = named[min(named)]
    for what in ("environ", "mem", "fd", "root", "cwd"):
        assert harness[what] == "EACCES", what


def test_calls_into_the_kernel_or_another_process_are_refused(survey: dict[str, Any]) -> None:
    for name, result in survey["system_calls"].items():
        assert result in ("EPERM", "ENOSYS"), name


def test_calls_by_another_gate_end_their_process(survey: dict[str, Any]) -> None:
    # The filter speaks of 64-bit calls alone, so every other way in must be shut as a whole.
    assert survey["interrupt_80"] == -signal.SIGSYS
    assert survey["x32"] == -signal.SIGSYS


def test_a_fifo_can_be_made(survey: dict[str, Any]) -> None:
    # An ordinary program's way to speak to another; refused, it would change what is measured.
    assert survey["fifo"] == "done"


# Set by the harness itself for what it starts, and by the shell.
HARNESS_ADDS = {
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_NOTES_DIR",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_SESSION_ATTENDED",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PID",
    "COREPACK_ENABLE_AUTO_PIN",
    "GIT_EDITOR",
    "NoDefaultCurrentDirectoryInExePath",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
}


def test_no_child_can_message_the_harness(survey: dict[str, Any]) -> None:
    assert not [name for name in survey["environment"] if "MESSAGING" in name]
    assert not [name for name in survey["unix"] if "cc-socks" in name]
    assert set(survey["occupied"].values()) == {"EPERM"}


def test_the_environment_is_the_list_and_what_the_harness_adds(survey: dict[str, Any]) -> None:
    found = survey["environment"]
    expected = {**pinned_routes(), **environment()}
    assert set(found) - HARNESS_ADDS <= set(expected)
    # What a shell needs of it is there, word for word.
    assert {name: found.get(name) for name in environment()} == environment()


def test_no_credential_is_in_the_session(stage: Stage, survey: dict[str, Any]) -> None:
    assert survey["holding"] == []
    take = stage.take("survey")
    assert take.credential == f"rehearsal-{script_key('survey')}~isolation-survey"
    texts = [json.dumps(survey["environment"]), json.dumps(survey["processes"])]
    assert not any(take.credential in words for words in texts)
    kept = [path for path in take.directory.rglob("*") if path.is_file()]
    assert not [path for path in kept if take.credential.encode() in path.read_bytes()]


def test_a_session_that_cannot_enter_its_workspace_is_refused_with_7(stage: Stage) -> None:
    recorded = stage.take("shut").recorded
    assert recorded.refusal is not None
    assert recorded.code == ExitCode.ENTER
    assert recorded.evidence.refusal is not None
    assert recorded.evidence.refusal.code == 7


def test_a_harness_that_is_missing_is_refused_with_12(stage: Stage) -> None:
    recorded = stage.take("no-harness").recorded
    assert recorded.code == ExitCode.CONFINEMENT
    assert recorded.refusal is not None
    assert "/opt/harness/other" in recorded.refusal.reasons[0]

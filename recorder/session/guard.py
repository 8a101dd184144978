"""Process 1 of a session container: keeps the channel, drops everything, runs the harness.

Run as ``python3 -I -S /opt/recorder/guard.py`` with cwd ``/``: nothing of the workspace can be
imported, read or run before privileges are dropped. It has no argument and takes nothing from its
environment; the driver lays ``/etc/recorder/session.json`` (root's, 0600) before the start.

What it leaves for the driver is ``/opt/recorder/outcome.json``, which only root can write. Its
exit status is the harness's (128 + n for signal n), 127 when there was no harness to run, and
137 when its standard input ended, which is how a driver that died ends its session, or when its
forwarder ended, without which a session has no way out.

Standard library only, and only modules that start fast: this file is copied into the image.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import NoReturn

CONFIGURATION = "/etc/recorder/session.json"
OUTCOME = "/opt/recorder/outcome.json"
FORWARDER = "/opt/recorder/forwarder.py"

PR_SET_DUMPABLE = 4
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522

PASSED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)

libc = ctypes.CDLL(None, use_errno=True)


class CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class CapabilitySets(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32 * 2),
        ("permitted", ctypes.c_uint32 * 2),
        ("inheritable", ctypes.c_uint32 * 2),
    ]


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    return checked(libc.prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0))


def drop_to(uid: int, gid: int) -> None:
    """Become uid and gid with no group, no capability in any set, and no way to gain one."""
    capability = 0
    while True:
        try:
            prctl(PR_CAPBSET_READ, capability)
        except OSError:
            # The kernel's own end of the list: EINVAL for the first number it does not know.
            break
        prctl(PR_CAPBSET_DROP, capability)
        capability += 1
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = CapabilityHeader(CAPABILITY_VERSION_3, 0)
    checked(libc.capset(ctypes.byref(header), ctypes.byref(CapabilitySets())))
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def default_signals() -> None:
    # Python ignores the last two, and what is ignored stays so through an exec.
    for number in (*PASSED_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def start_forwarder(port: int, socket_path: str, uid: int) -> int:
    """The listening socket is made here, so it answers before the harness exists."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    process = os.fork()
    if process == 0:
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.dup2(listener.fileno(), 3, inheritable=True)
            default_signals()
            drop_to(uid, uid)
            os.execve(
                "/usr/bin/python3",
                ["python3", "-I", "-S", FORWARDER, "3", socket_path],
                {},
            )
        finally:
            os._exit(127)
    listener.close()
    return process


def start_harness(
    argv: list[str], environment: dict[str, str], directory: str, uid: int, gid: int
) -> tuple[int, str, str]:
    """(pid, "", "") of the running harness, or the stage that failed and why."""
    report_read, report_write = os.pipe2(os.O_CLOEXEC)
    process = os.fork()
    if process == 0:
        stage = "start"
        try:
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.setsid()
            default_signals()
            os.umask(0o022)
            drop_to(uid, gid)
            stage = "enter"
            os.chdir(directory)
            stage = "start"
            os.execve(argv[0], argv, environment)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the guard must say it
            os.write(report_write, f"{stage}\n{argv[0]}: {error}".encode())
        finally:
            os._exit(127)
    os.close(report_write)
    report = b""
    while piece := os.read(report_read, 4096):
        report += piece
    os.close(report_read)
    if report:
        stage, _, reason = report.decode("utf-8", "replace").partition("\n")
        os.waitpid(process, 0)
        return 0, stage, reason
    return process, "", ""


def pass_signal(number: int, process: int, uid: int) -> None:
    """Without CAP_KILL only the session's own uid may signal it: a child becomes that uid."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            os.kill(process, number)
        finally:
            os._exit(0)


def leave(status: int, outcome: dict[str, object]) -> NoReturn:
    """Write what happened and end: with process 1 every process of the session ends."""
    part = OUTCOME + ".part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, json.dumps(outcome).encode())
    os.close(descriptor)
    os.rename(part, OUTCOME)
    os._exit(status)


def main() -> NoReturn:
    prctl(PR_SET_DUMPABLE, 0)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    received: list[int] = []
    for number in PASSED_SIGNALS:
        signal.signal(number, lambda received_number, _frame: received.append(received_number))
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    with open(CONFIGURATION, "rb") as file:
        configuration = json.load(file)
    uid, gid = int(configuration["uid"]), int(configuration["gid"])
    # The engine writes the host's resolver here even where there is no network.
    with open("/etc/resolv.conf", "wb"):
        pass
    for path in configuration["occupied"]:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    forwarder = start_forwarder(
        int(configuration["port"]), configuration["socket"], int(configuration["forwarder_uid"])
    )
    started = time.time()
    harness, stage, reason = start_harness(
        configuration["argv"],
        configuration["environment"],
        configuration["directory"],
        uid,
        gid,
    )
    if not harness:
        leave(127, {"stage": stage, "reason": reason})
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)

    reaped = 0
    while True:
        readable, _, _ = select.select([0, wake_read], [], [])
        while received:
            pass_signal(received.pop(0), harness, uid)
        if wake_read in readable:
            os.read(wake_read, 4096)
        if 0 in readable and not os.read(0, 65536):
            leave(137, {"stage": "lifeline", "reason": "standard input ended"})
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # No child is left to wait for; the harness would have been seen before.
                break
            if process == 0:
                break
            if process == forwarder:
                code = os.waitstatus_to_exitcode(status)
                leave(
                    137,
                    {
                        "stage": "forwarder",
                        "reason": f"its forwarder ended with {code}",
                        "forwarder_status": code,
                        "started": started,
                        "ended": time.time(),
                        "reaped": reaped,
                    },
                )
            elif process == harness:
                code = os.waitstatus_to_exitcode(status)
                usage = resource.getrusage(resource.RUSAGE_CHILDREN)
                leave(
                    code if code >= 0 else 128 - code,
                    {
                        "stage": "harness",
                        "exit": code,
                        "started": started,
                        "ended": time.time(),
                        "reaped": reaped,
                        "peak_kib": usage.ru_maxrss,
                        "cpu_seconds": usage.ru_utime + usage.ru_stime,
                    },
                )
            else:
                reaped += 1


if __name__ == "__main__":
    try:
        main()
    except BaseException as error:  # noqa: BLE001 - process 1 has nobody above it to tell
        sys.stderr.write(f"recorder guard: {error!r}\n")
        sys.stderr.flush()
        leave(127, {"stage": "guard", "reason": repr(error)})

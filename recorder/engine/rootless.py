"""Our engine: a rootless dockerd, run by an unprivileged user. Start, stop, status.

As root it runs as the system user ``recorder``, which set-up makes; as anybody else it runs as that
user. It has its own data root, whose path names no person (a session sees it in ``/proc/mounts``),
its own address pools and its own log. An engine that already answers at our socket is adopted; only
one that this module started is ever stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import requests.exceptions

from recorder.refusal import ExitCode, Refusal

USER = "recorder"
START_SECONDS = 60.0
STOP_SECONDS = 40.0

# The engine's own default pools hold about 27 networks; these hold 4096 of 14 hosts each.
ADDRESS_POOLS = [{"base": "10.222.0.0/16", "size": 28}]

SCRIPTS = ("dockerd-rootless.sh", "/usr/share/docker.io/contrib/dockerd-rootless.sh")


@dataclass(frozen=True)
class Place:
    """Where our engine lives, and as whom it runs."""

    user: str
    uid: int
    gid: int
    home: str
    runtime: Path
    data_root: Path
    log: Path

    @property
    def socket(self) -> Path:
        return self.runtime / "docker.sock"

    @property
    def docker_host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def record(self) -> Path:
        """What was started: pid and start time. Outside the data root, gone with the machine."""
        return self.runtime / "recorder-engine.json"


@dataclass(frozen=True)
class Status:
    """Whether our engine answers. ``pid`` is None unless this module started it."""

    running: bool
    docker_host: str
    user: str
    data_root: str
    log: str
    pid: int | None


@dataclass(frozen=True)
class Started:
    """After ``start``. ``fresh``: it was not running before."""

    status: Status
    fresh: bool


def place() -> Place:
    """Where the engine of whoever calls lives; Refusal (3) where set-up has not made its user."""
    if os.geteuid() == 0:
        try:
            account = pwd.getpwnam(USER)
        except KeyError as error:
            raise Refusal(
                ExitCode.MISSING, f"there is no user {USER} to run the engine: run make setup"
            ) from error
        runtime = Path("/run/user", str(account.pw_uid))
        data_root = Path("/var/lib/recorder/engine")
    else:
        account = pwd.getpwuid(os.geteuid())
        given = os.environ.get("XDG_RUNTIME_DIR")
        # A directory of its own: the user may have a rootless engine already, and keeps it.
        runtime = (Path(given) if given else Path(account.pw_dir, ".cache")) / "recorder-engine"
        data_root = Path(f"/var/lib/recorder-{account.pw_uid}", "engine")
        if not os.access(data_root, os.W_OK):
            data_root = Path(account.pw_dir, ".local", "share", "recorder", "engine")
    return Place(
        user=account.pw_name,
        uid=account.pw_uid,
        gid=account.pw_gid,
        home=account.pw_dir,
        runtime=runtime,
        data_root=data_root,
        log=data_root.with_name("engine.log"),
    )


def status() -> Status:
    """Whether our engine answers, and where."""
    where = place()
    return Status(
        running=answers(where.docker_host),
        docker_host=where.docker_host,
        user=where.user,
        data_root=str(where.data_root),
        log=str(where.log),
        pid=_recorded(where),
    )


def start() -> Started:
    """Start our engine unless it answers already; wait until it does. Refusal (3) otherwise."""
    where = place()
    _make_directories(where)
    with _locked(where):
        if answers(where.docker_host):
            return Started(status(), fresh=False)
        command = _command(where)
        (where.runtime / "docker.pid").unlink(missing_ok=True)
        offset = where.log.stat().st_size if where.log.exists() else 0
        pid = _spawn(command, where.log)
        _write_record(where, pid)
        deadline = time.monotonic() + START_SECONDS
        while not answers(where.docker_host):
            ended, outcome = os.waitpid(pid, os.WNOHANG)
            if ended == pid:
                where.record.unlink(missing_ok=True)
                raise Refusal(
                    ExitCode.MISSING,
                    f"the engine ended with {os.waitstatus_to_exitcode(outcome)} "
                    "while it started: "
                    f"{_complaint(where.log, offset)} (log: {where.log})",
                )
            if time.monotonic() > deadline:
                _end(pid, where)
                where.record.unlink(missing_ok=True)
                raise Refusal(
                    ExitCode.MISSING,
                    f"the engine did not answer within {START_SECONDS:.0f} s: "
                    f"{_complaint(where.log, offset)} (log: {where.log})",
                )
            time.sleep(0.05)
    return Started(status(), fresh=True)


def stop() -> bool:
    """Stop the engine that ``start`` started. False where none runs; Refusal (3) for another's."""
    where = place()
    if not where.runtime.exists():
        return False
    with _locked(where):
        pid = _recorded(where)
        if pid is None:
            if answers(where.docker_host):
                raise Refusal(
                    ExitCode.MISSING,
                    f"the engine at {where.docker_host} was not started by recorder engine start: "
                    "whoever started it stops it",
                )
            return False
        _end(pid, where)
        where.record.unlink(missing_ok=True)
    return True


def answers(docker_host: str) -> bool:
    """Whether an engine answers at ``docker_host`` within two seconds."""
    try:
        reach(docker_host)
    except OSError:
        # Nobody listens there; that is the answer.
        return False
    try:
        client = docker.APIClient(base_url=docker_host, timeout=2)
    except docker.errors.DockerException:
        return False
    try:
        return bool(client.ping())
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return False
    finally:
        client.close()


def reach(docker_host: str) -> None:
    """Connect to a unix socket and let go; OSError where nobody listens. Other addresses pass.

    docker's own client leaves a descriptor open where it cannot connect.
    """
    if docker_host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(2)
            probe.connect(docker_host.removeprefix("unix://"))


def _spawn(command: list[str], log: Path) -> int:
    """Start ``command`` in a session of its own, with nothing of ours open; its pid.

    Not a Popen: the engine outlives whoever started it.
    """
    program = shutil.which(command[0])
    if program is None:
        raise Refusal(ExitCode.MISSING, f"{command[0]} is missing: run make setup")
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        program,
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE],
    )


def _make_directories(where: Place) -> None:
    for directory, mode in ((where.runtime, 0o700), (where.data_root, 0o711)):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if directory.stat().st_uid != where.uid:
                os.chown(directory, where.uid, where.gid)
                directory.chmod(mode)
        except OSError as error:
            raise Refusal(
                ExitCode.MISSING, f"{directory}: {error.strerror}: run make setup"
            ) from error


def _command(where: Place) -> list[str]:
    script = next((found for name in SCRIPTS if (found := shutil.which(name))), None)
    if script is None:
        raise Refusal(ExitCode.MISSING, "dockerd-rootless.sh is missing: apt-get install docker.io")
    configuration = where.data_root.with_name("engine.json")
    configuration.write_text(
        json.dumps(
            {
                "data-root": str(where.data_root),
                "default-address-pools": ADDRESS_POOLS,
                "log-level": "warn",
            },
            indent=1,
        ),
        encoding="utf-8",
    )
    configuration.chmod(0o644)
    environment = {
        "HOME": where.home if Path(where.home).is_dir() else str(where.data_root.parent),
        "USER": where.user,
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "XDG_RUNTIME_DIR": str(where.runtime),
    }
    command = [
        *("env", "--chdir=/", "-i", *(f"{name}={value}" for name, value in environment.items())),
        *(script, "--config-file", str(configuration)),
    ]
    if os.geteuid() != 0:
        return command
    drop = ("setpriv", "--reuid", where.user, "--regid", where.user, "--init-groups")
    return [*drop, "--inh-caps=-all", *command]


@contextlib.contextmanager
def _locked(where: Place) -> Iterator[None]:
    with (where.runtime / "recorder-engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_record(where: Place, pid: int) -> None:
    partial = where.record.with_suffix(".partial")
    partial.write_text(json.dumps({"pid": pid, "started": _start_time(pid)}), encoding="utf-8")
    partial.replace(where.record)


def _recorded(where: Place) -> int | None:
    """The pid of the engine we started, where that very process still runs."""
    try:
        record = json.loads(where.record.read_text(encoding="utf-8"))
        pid, started = int(record["pid"]), int(record["started"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{where.record}: not a record of an engine: remove it"
        ) from error
    return pid if _start_time(pid) == started else None


def _start_time(pid: int) -> int:
    """A process's start in clock ticks since boot; -1 where there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    fields = text[text.rindex(")") + 2 :].split()
    return -1 if fields[0] == "Z" else int(fields[19])


def _end(pid: int, where: Place) -> None:
    """End the engine's process tree: asked first, and made to after a deadline."""
    started = _start_time(pid)
    family = _descendants(pid)
    for wanted, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, wanted)
        deadline = time.monotonic() + seconds
        while _start_time(pid) == started and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
        if _start_time(pid) != started:
            break
    # What the engine leaves behind when it is killed (containerd and its shims) was its own.
    deadline = time.monotonic() + 5.0
    while left := [child for child, begun in family if _start_time(child) == begun]:
        if time.monotonic() > deadline:
            for child in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.05)
    where.socket.unlink(missing_ok=True)


def _descendants(pid: int) -> list[tuple[int, int]]:
    """Every descendant of ``pid`` with its start time."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parent = int(text[text.rindex(")") + 2 :].split()[1])
        children.setdefault(parent, []).append(int(entry.name))
    found: list[tuple[int, int]] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.append((child, _start_time(child)))
            waiting.append(child)
    return found


def _complaint(log: Path, offset: int) -> str:
    """The last lines of the log that say what is wrong."""
    with log.open("rb") as stream:
        stream.seek(offset)
        lines = stream.read().decode(errors="replace").splitlines()
    telling = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    return " / ".join(line.strip() for line in (telling or lines)[-2:]) or "it said nothing"

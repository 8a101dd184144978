"""What an earlier driver left behind: found by its labels, its evidence kept, then removed.

A container of a driver that died has ended by itself (its lifeline). A driver that still runs is
told from one that died by the boot, the process and the process's start time in its label. A
driver in another process namespace (compose) or on another host cannot be looked up: it lives
while one of its containers runs, and what it only created counts as left after a while.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from recorder.durable import write_durable
from recorder.engine.client import Engine
from recorder.images.build import image_tag
from recorder.refusal import ExitCode, Refusal
from recorder.session.container import EGRESS_DIRECTORY, EGRESS_LOG
from recorder.session.driver import OUTCOME_FILE, OUTCOME_LIMIT
from recorder.session.sidecar import EGRESS_LIMIT, EGRESS_VOLUME

DRIVER_LABEL = "recorder.driver"
DIRECTORY_LABEL = "recorder.directory"
BATCH_LABEL = "recorder.batch"
UNKNOWN_SECONDS = 600
WORK_PREFIX = "recorder-work."
LOCK_SECONDS = 120.0

_PROCESS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class Leftover:
    """One thing that was removed, and where its evidence lies (None where it had none)."""

    kind: str
    name: str
    evidence: Path | None


# Shared by every container, volume and network of this process, and by no other driver's.
_TOKEN = secrets.token_hex(4)


def driver_name() -> str:
    """What the names of everything that this process makes on an engine begin with."""
    return f"recorder-{_TOKEN}"


def driver_identity() -> str:
    """``boot:namespace:process:start:token`` of this process, as a label's value."""
    process = os.getpid()
    return f"{_boot()}:{_namespace()}:{process}:{_start_time(process)}:{_TOKEN}"


def driver_lives(identity: str) -> bool | None:
    """Whether the driver of a label still runs; None for one that cannot be looked up here."""
    parts = identity.split(":")
    if len(parts) != 5 or not _PROCESS.fullmatch(parts[2]):
        return False
    if parts[0] != _boot() or parts[1] != _namespace():
        return None
    return parts[3] == _start_time(int(parts[2]))


def _namespace() -> str:
    """The inode of this process's own process namespace."""
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - a link to no file


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _start_time(process: int) -> str:
    """Field 22 of /proc/PID/stat: clock ticks since the boot; empty where there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        # No such process any more, which is the answer.
        return ""
    return text.rpartition(")")[2].split()[19]


def collect_leftovers(
    engine: Engine, kept: Callable[[], None] = lambda: None, batch: str | None = None
) -> tuple[Leftover, ...]:
    """Keep the evidence of every dead driver's containers, then remove them.

    ``kept`` is called between the two: what the evidence says can be written down before anything
    is gone. Whoever holds the lock of ``batch`` is its one driver, so that whatever bears its label
    is of a dead one, also where that cannot be looked up.

    One driver at a time: when this returns, evidence that another was keeping is kept too, and
    nobody writes any more into the directory of a session that is about to be moved aside.
    """
    with _alone():
        return _collect_dead(engine, kept, batch)


@contextmanager
def _alone() -> Iterator[None]:
    directory = Path(tempfile.gettempdir()) / f"recorder-{os.geteuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if not _is_own_directory(directory):
        raise Refusal(
            ExitCode.USAGE,
            f"{directory}: the lock between recorders of one user lies there, and it is another "
            "user's or a link: remove it, or set TMPDIR to a directory of your own",
        )
    lock = directory / "leftovers.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(lock, flags, 0o600)
    try:
        _lock(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Refusal 3 where another recorder holds it for too long."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another driver collects now; it usually takes seconds.
            if time.monotonic() >= until:
                raise Refusal(
                    ExitCode.MISSING,
                    f"{path}: another recorder has been collecting what earlier ones left for "
                    f"over {LOCK_SECONDS:g} s: see what it waits for, end it, and try again",
                ) from None
            time.sleep(0.05)
        else:
            return


def _is_own_directory(path: Path) -> bool:
    """Whether it is a directory of this user's, and no link to one."""
    try:
        status = path.lstat()
    except OSError:
        # Not there, or not to be seen: not a place to write into either way.
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _collect_dead(
    engine: Engine, kept: Callable[[], None], batch: str | None
) -> tuple[Leftover, ...]:
    now = time.time()
    seen = {
        container["Labels"][DRIVER_LABEL]
        for container in engine.containers(DRIVER_LABEL)
        if container["State"] == "running" or now - container["Created"] < UNKNOWN_SECONDS
    }

    def is_left(labels: Mapping[str, str]) -> bool:
        identity = labels[DRIVER_LABEL]
        if batch is not None and labels.get(BATCH_LABEL) == batch:
            return identity != driver_identity()
        lives = driver_lives(identity)
        return identity not in seen if lives is None else not lives

    return _collect(engine, is_left, kept)


@contextmanager
def nothing_left(engine: Engine) -> Iterator[None]:
    """Where the body fails or is interrupted, what this driver made is collected at once.

    An interrupt can fall between the making of a container and the note that it was made.
    """
    try:
        yield
    except BaseException:
        # What ended the body says more than an engine or a disk that fails now; what is left
        # then is the next driver's to collect.
        with suppress(DockerException, RequestException, OSError):
            own = driver_identity()
            _collect(engine, lambda labels: labels[DRIVER_LABEL] == own, lambda: None)
        raise


def _collect(
    engine: Engine, is_left: Callable[[Mapping[str, str]], bool], kept: Callable[[], None]
) -> tuple[Leftover, ...]:
    found: list[Leftover] = []
    ended: list[tuple[str, Leftover]] = []
    for container in engine.containers(DRIVER_LABEL):
        labels = container["Labels"]
        if not is_left(labels):
            continue
        name = container["Names"][0].lstrip("/")
        try:
            if container["State"] == "running":
                engine.kill(container["Id"])
            evidence = _keep(engine, container["Id"], labels.get(DIRECTORY_LABEL), labels)
        except NotFound:
            # Another driver is collecting the same.
            continue
        ended.append((container["Id"], Leftover("container", name, evidence)))
    for volume in engine.volumes(DRIVER_LABEL):
        if is_left(volume["Labels"]) and volume["Name"].endswith(EGRESS_VOLUME):
            _keep_log(engine, volume["Name"], volume["Labels"])
    kept()
    for identifier, leftover in ended:
        engine.remove_container(identifier)
        found.append(leftover)
    for volume in engine.volumes(DRIVER_LABEL):
        name = volume["Name"]
        if is_left(volume["Labels"]) and _removed(engine.remove_volume, name):
            found.append(Leftover("volume", name, None))
    for network in engine.networks(DRIVER_LABEL):
        identifier = network["Id"]
        if is_left(network["Labels"]) and _removed(engine.remove_network, identifier):
            found.append(Leftover("network", network["Name"], None))
    return tuple(found)


def _removed(remove: Callable[[str], None], name: str) -> bool:
    """Whether it could be removed; False where something still uses it, so that it is not left."""
    try:
        remove(name)
    except APIError as error:
        if error.response is not None and error.response.status_code in (403, 409):
            # In use: by a container that appeared since they were listed.
            return False
        raise
    return True


def _keep(
    engine: Engine, container: str, directory: str | None, labels: dict[str, str]
) -> Path | None:
    """The egress log or the guard's outcome, and the container's last state, in its directory.

    A file that the driver had already written is never replaced. Anybody who may use the engine
    can write a label, so only a directory of this user's is written into.
    """
    if directory is None or not _is_own_directory(Path(directory)):
        return None
    role = labels.get("recorder.role", "")
    path, limit, name = {
        "sidecar": (EGRESS_LOG, EGRESS_LIMIT, "egress.jsonl"),
        "session": (OUTCOME_FILE, OUTCOME_LIMIT, "outcome.json"),
    }.get(role, (None, 0, ""))
    target = Path(directory)
    if path is not None:
        try:
            data = engine.get_file(container, path, limit)
        except APIError as error:
            # The container never started, so it has no such file: that is written down.
            data = None
            write_durable(target / f"leftover-{role}.error", f"{error}\n".encode())
        if data is not None and not os.path.lexists(target / name):
            write_durable(target / name, data)
    state = engine.inspect(container)["State"]
    write_durable(target / f"leftover-{role}.json", json.dumps(state, sort_keys=True).encode())
    return target


def _keep_log(engine: Engine, volume: str, labels: Mapping[str, str]) -> None:
    """The egress log of a volume whose sidecar somebody removed, in its session's directory.

    The log is the one witness of what the session spent. A container that is never started shows
    the engine the volume's files.
    """
    place = labels.get(DIRECTORY_LABEL)
    if place is None or not _is_own_directory(Path(place)):
        return
    target = Path(place) / "egress.jsonl"
    image = engine.image_id(image_tag("proxy"))
    if os.path.lexists(target) or image is None:
        return
    mount = {"Type": "volume", "Source": volume, "Target": EGRESS_DIRECTORY, "ReadOnly": True}
    container = engine.create_container(
        f"{driver_name()}-log-{secrets.token_hex(4)}",
        {
            "Image": image,
            "Labels": {DRIVER_LABEL: driver_identity()},
            "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
        },
    )
    try:
        log = engine.get_file(container, EGRESS_LOG, EGRESS_LIMIT)
    finally:
        engine.remove_container(container)
    if log is not None:
        write_durable(target, log)


@contextmanager
def work_directory() -> Iterator[Path]:
    """A temporary directory of this driver; those that dead drivers left are removed first."""
    base = Path(tempfile.gettempdir())
    for other in base.glob(f"{WORK_PREFIX}*"):
        identity = other.name.removeprefix(WORK_PREFIX).rpartition(".")[0]
        # Another driver may have removed it since it was listed: then it is none of ours either.
        if _is_own_directory(other) and driver_lives(identity) is False:
            # Another driver may be removing it too; what stays is the next one's to remove.
            shutil.rmtree(other, ignore_errors=True)
    prefix = f"{WORK_PREFIX}{driver_identity()}."
    with tempfile.TemporaryDirectory(prefix=prefix, dir=base) as directory:
        yield Path(directory)

"""What an earlier driver left behind: found by its labels, its evidence kept, then removed.

A container of a driver that died has ended by itself (its lifeline). A driver that still runs is
told from one that died by the boot, the process and the process's start time in its label.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError

from recorder.engine.client import Engine
from recorder.session.container import EGRESS_LOG
from recorder.session.driver import OUTCOME_FILE, OUTCOME_LIMIT, write_durable
from recorder.session.sidecar import EGRESS_LIMIT

DRIVER_LABEL = "recorder.driver"
DIRECTORY_LABEL = "recorder.directory"


@dataclass(frozen=True)
class Leftover:
    """One thing that was removed, and where its evidence lies (None where it had none)."""

    kind: str
    name: str
    evidence: Path | None


def driver_identity() -> str:
    """``boot:process:start`` of this process, as a label's value."""
    return f"{_boot()}:{os.getpid()}:{_start_time(os.getpid())}"


def driver_lives(identity: str) -> bool:
    """Whether the driver of a label still runs on this host, in this boot."""
    boot, _, rest = identity.partition(":")
    process, _, start = rest.partition(":")
    return boot == _boot() and process.isdigit() and start == _start_time(int(process))


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


def collect_leftovers(engine: Engine) -> tuple[Leftover, ...]:
    """Keep the evidence of every dead driver's containers, then remove them."""
    found: list[Leftover] = []
    for container in engine.containers(DRIVER_LABEL):
        labels = container["Labels"]
        if driver_lives(labels[DRIVER_LABEL]):
            continue
        name = container["Names"][0].lstrip("/")
        if container["State"] == "running":
            engine.kill(container["Id"])
        evidence = _keep(engine, container["Id"], labels.get(DIRECTORY_LABEL), labels)
        engine.remove_container(container["Id"])
        found.append(Leftover("container", name, evidence))
    for volume in engine.volumes(DRIVER_LABEL):
        if not driver_lives(volume["Labels"][DRIVER_LABEL]):
            engine.remove_volume(volume["Name"])
            found.append(Leftover("volume", volume["Name"], None))
    for network in engine.networks(DRIVER_LABEL):
        if not driver_lives(network["Labels"][DRIVER_LABEL]):
            engine.remove_network(network["Id"])
            found.append(Leftover("network", network["Name"], None))
    return tuple(found)


def _keep(
    engine: Engine, container: str, directory: str | None, labels: dict[str, str]
) -> Path | None:
    """The egress log or the guard's outcome, and the container's last state, in its directory.

    A file that the driver had already written is never replaced.
    """
    if directory is None or not Path(directory).is_dir():
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
        if data is not None and not (target / name).exists():
            write_durable(target / name, data)
    state = engine.inspect(container)["State"]
    write_durable(target / f"leftover-{role}.json", json.dumps(state, sort_keys=True).encode())
    return target

"""What the engine is asked for: the session's and the sidecar's container, as data. Pure.

Source: DESIGN sections 4 to 6. A session has no network, no bind mount, no capability but the
three its guard drops privileges with, and its standard input is its lifeline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

SOCKET_DIRECTORY = "/run/recorder"
SOCKET = f"{SOCKET_DIRECTORY}/proxy.sock"
EGRESS_DIRECTORY = "/var/log/recorder"
EGRESS_LOG = f"{EGRESS_DIRECTORY}/egress.jsonl"
SESSION_UID = 1000
FORWARDER_UID = 2000

GUARD_CAPABILITIES = ("SETUID", "SETGID", "SETPCAP")

# The engine's own list, and what else names the host: its boot line, disks and swap.
MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/diskstats",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/swaps",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True)
class Limits:
    """What a session may use. Memory and processes hold only where the engine enforces them."""

    memory_bytes: int = 4 << 30
    processes: int = 512
    open_files: int = 4096
    file_bytes: int = 2 << 30
    temporary_bytes: int = 512 << 20
    shared_memory_bytes: int = 64 << 20


def forwarder_uid(uid: int) -> int:
    """A session's forwarder has a uid of its own: the kernel counts processes by uid, across
    containers, and one session's forwarder must not use up another's."""
    return FORWARDER_UID + uid - SESSION_UID


def seccomp_profile() -> str:
    """The shipped profile, as the engine takes it: compact JSON."""
    text = resources.files("recorder.session").joinpath("seccomp.json").read_text("utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"))


def _request(
    image: str, labels: Mapping[str, str], host: Mapping[str, object], network: str
) -> dict[str, object]:
    """What both containers share: an attached, once-only standard input and no log kept."""
    return {
        "Image": image,
        "Env": [],
        "WorkingDir": "/",
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        # Without it the container outlives a driver that was killed.
        "StdinOnce": True,
        "Tty": False,
        "Labels": dict(labels),
        "HostConfig": {
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "IpcMode": "private",
            # The engine's log would be a second copy of the whole stream.
            "LogConfig": {"Type": "none", "Config": {}},
            **host,
        },
    }


def session_container(
    image: str, labels: Mapping[str, str], socket_volume: str | None, limits: Limits
) -> dict[str, object]:
    """The body of the engine's create request for a session.

    Without a ``socket_volume`` it has no way out at all: so a check runs.
    """
    request = _request(
        image,
        labels,
        {
            "CapAdd": list(GUARD_CAPABILITIES),
            "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"],
            "Dns": ["127.0.0.1"],
            "DnsSearch": ["."],
            "Mounts": [
                {
                    "Type": "volume",
                    "Source": socket_volume,
                    "Target": SOCKET_DIRECTORY,
                    "ReadOnly": True,
                    "VolumeOptions": {"NoCopy": True},
                }
            ]
            if socket_volume is not None
            else [],
            "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.temporary_bytes}"},  # noqa: S108 - the session's own, in memory
            "ShmSize": limits.shared_memory_bytes,
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,
            "PidsLimit": limits.processes,
            "Ulimits": [
                {"Name": "nproc", "Soft": limits.processes, "Hard": limits.processes},
                {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
                {"Name": "fsize", "Soft": limits.file_bytes, "Hard": limits.file_bytes},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "Sysctls": {
                "net.ipv6.conf.all.disable_ipv6": "1",
                "net.ipv6.conf.default.disable_ipv6": "1",
            },
            "MaskedPaths": list(MASKED_PATHS),
            "ReadonlyPaths": list(READ_ONLY_PATHS),
        },
        "none",
    )
    request["Hostname"] = "session"
    request["User"] = "0:0"
    return request


def sidecar_container(
    image: str,
    labels: Mapping[str, str],
    socket_volume: str,
    egress_volume: str,
    network: str,
) -> dict[str, object]:
    """The body of the engine's create request for a sidecar."""
    return _request(
        image,
        labels,
        {
            "SecurityOpt": ["no-new-privileges"],
            "Mounts": [
                {"Type": "volume", "Source": socket_volume, "Target": SOCKET_DIRECTORY},
                {"Type": "volume", "Source": egress_volume, "Target": EGRESS_DIRECTORY},
            ],
        },
        network,
    )

"""What this host can and cannot confine or enforce, each finding with its evidence.

``gather`` reads the host and asks the engine; ``findings`` judges what was gathered and is pure. A
live attempt to break out of a session is the caller's to add: no file of the host proves that.
"""

from __future__ import annotations

import ctypes
import datetime
import enum
import ipaddress
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions

from recorder.engine import rootless
from recorder.engine.connect import Choice, EngineFacts, choice, connect, engine_facts
from recorder.images.build import ImageState, list_images
from recorder.refusal import ExitCode, Refusal

SUBORDINATE_IDS = 65536
FREE_BYTES = 5 << 30
# The engine needs some hundreds of descriptors itself and about a dozen a session.
OPEN_FILES = 4096
# dockerd 20.10 hands names of internal networks to the host's resolver in some set-ups.
VERSION_WITH_INTERNAL_RESOLVER_CLOSED = (26, 0)
# What dockerd draws networks from where its configuration names no pools: 31 in all.
DEFAULT_POOLS = (
    *((f"172.{second}.0.0/16", 16) for second in range(17, 32)),
    ("192.168.0.0/16", 20),
)
# A rehearsal makes one network; a few more are for other drivers and what is being removed.
SPARE_NETWORKS = 4
CLOCK_SECONDS = 5.0
CREDENTIAL_SECONDS = 3600.0
# adjtimex(2): the kernel's word for a clock that nothing keeps right.
TIME_ERROR = 5
TIMEX_BYTES = 208


class Level(enum.Enum):
    """What a finding means for a session on this host."""

    OK = "ok"
    NOTE = "note"  # true and worth knowing; nothing to do
    WEAK = "weak"  # a limit that does not hold, or a ceiling that is near
    MISSING = "missing"  # set-up is not done: exit 3
    MISPLACED = "misplaced"  # an output directory where none may lie: exit 6
    UNCONFINED = "unconfined"  # a session could not be confined: exit 12


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``remedy`` is empty where nothing is to be done."""

    subject: str
    level: Level
    evidence: str
    remedy: str = ""


@dataclass(frozen=True)
class HostFacts:
    """What was read of the host. None where the kernel has no such setting."""

    engine_user: str
    max_user_namespaces: int | None
    unprivileged_user_namespaces: int | None
    apparmor_restricts_user_namespaces: int | None
    subordinate_uids: int
    subordinate_gids: int
    uid_map_helpers: tuple[str, ...]
    tun_mode: int | None
    seccomp_actions: str
    keyrings: int | None
    inotify_instances: int | None
    open_files: int
    free_bytes: int | None
    free_bytes_path: str


@dataclass(frozen=True)
class ClockFacts:
    """``synchronised`` is the kernel's word. ``ahead`` is how many seconds the engine's clock is.

    ``ahead`` is None where the engine did not say its time.
    """

    synchronised: bool
    ahead: float | None


@dataclass(frozen=True)
class NetworkFacts:
    """How many networks an engine has, and how many its address pools hold."""

    used: int
    ceiling: int


@dataclass(frozen=True)
class Gathered:
    """All that ``findings`` judges. ``engine`` is None where none answers; ``refusal`` says why."""

    host: HostFacts
    chosen: Choice | None
    engine: EngineFacts | None
    refusal: str
    images: tuple[ImageState, ...]
    clock: ClockFacts
    networks: NetworkFacts | None


def gather() -> Gathered:
    """Read the host and ask the engine that is used."""
    chosen: Choice | None = None
    facts: EngineFacts | None = None
    images: tuple[ImageState, ...] = ()
    networks: NetworkFacts | None = None
    ahead: float | None = None
    refusal = ""
    client: docker.DockerClient | None = None
    try:
        chosen = choice()
        client = connect(timeout=20)
        facts = engine_facts(client)
        images = tuple(list_images(client))
        before = datetime.datetime.now(datetime.UTC)
        information = client.info()
        ahead = seconds_ahead(information, before, datetime.datetime.now(datetime.UTC))
        networks = NetworkFacts(len(client.networks.list()), network_ceiling(information))
    except Refusal as error:
        refusal = "; ".join(error.reasons)
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        refusal = f"the engine stopped answering: {error}"
    finally:
        if client is not None:
            client.close()
    clock = ClockFacts(_clock_is_synchronised(), ahead)
    return Gathered(_host_facts(facts), chosen, facts, refusal, images, clock, networks)


def seconds_ahead(
    information: Mapping[str, Any], before: datetime.datetime, after: datetime.datetime
) -> float | None:
    """How far an engine's clock is ahead of this host's, which it was asked between two times.

    0 within the time that the question took. None for an engine that does not say its time. Pure.
    """
    try:
        # Nanoseconds, of which Python reads six digits.
        said = datetime.datetime.fromisoformat(str(information["SystemTime"]))
    except (KeyError, ValueError):
        # Podman's socket and old engines leave it out or write it otherwise.
        return None
    if said.tzinfo is None:
        return None
    if said > after:
        return (said - after).total_seconds()
    return min(0.0, (said - before).total_seconds())


def network_ceiling(information: Mapping[str, Any]) -> int:
    """How many networks the address pools of an engine hold. Pure."""
    pools = [
        (str(pool["Base"]), int(pool["Size"]))
        for pool in information.get("DefaultAddressPools") or []
    ]
    return sum(
        1 << max(0, size - ipaddress.ip_network(base, strict=False).prefixlen)
        for base, size in pools or DEFAULT_POOLS
    )


def exit_code(found: Sequence[Finding]) -> ExitCode:
    """12 where a session could not be confined, else 3 (set-up), else 6 (place), else 0."""
    levels = {finding.level for finding in found}
    for level, code in (
        (Level.UNCONFINED, ExitCode.CONFINEMENT),
        (Level.MISSING, ExitCode.MISSING),
        (Level.MISPLACED, ExitCode.PLACE),
    ):
        if level in levels:
            return code
    return ExitCode.DONE


def findings(gathered: Gathered) -> tuple[Finding, ...]:
    """Judge what was gathered. Pure."""
    ours = gathered.chosen is None or gathered.chosen.origin == "recorder engine"
    return (
        *_engine(gathered),
        *(_host_for_ours(gathered.host) if ours else ()),
        *_ceilings(gathered),
        _clock(gathered.clock),
        *_images(gathered),
    )


def credential_finding(form: str | None, expires_at: float | None, now: float) -> Finding:
    """What the host's credential is good for. ``form`` is None where it has none. Pure."""
    subject = "credential"
    if form is None:
        return Finding(subject, Level.NOTE, "the host has none: only rehearsals can run")
    if expires_at is None:
        return Finding(subject, Level.OK, f"{form}; it does not say when it expires")
    left = expires_at - now
    if left <= 0:
        evidence = f"{form}; expired {-left / 60:.0f} minutes ago"
        return Finding(subject, Level.UNCONFINED, evidence, "use Claude Code on the host once")
    evidence = f"{form}; expires in {left / 60:.0f} minutes"
    if left < CREDENTIAL_SECONDS:
        remedy = "use Claude Code on the host, which refreshes it; no session can"
        return Finding(subject, Level.WEAK, evidence, remedy)
    return Finding(subject, Level.OK, evidence)


def place_finding(directory: str, refusal: str | None, free_bytes: int) -> Finding:
    """Whether a batch may write its files into a directory. Pure."""
    subject = "output directory"
    if refusal is not None:
        return Finding(subject, Level.MISPLACED, refusal)
    evidence = f"{directory}: outside the home directory, {free_bytes / 1e9:.1f} GB free"
    if free_bytes < FREE_BYTES:
        return Finding(subject, Level.WEAK, evidence, f"free {FREE_BYTES / 1e9:.0f} GB")
    return Finding(subject, Level.OK, evidence)


def _clock(clock: ClockFacts) -> Finding:
    if clock.ahead is not None and abs(clock.ahead) > CLOCK_SECONDS:
        evidence = f"the engine's clock is {clock.ahead:+.0f} s from this host's"
        remedy = "let one time server keep both: their certificates and logs name times"
        return Finding("clock", Level.WEAK, evidence, remedy)
    apart = "" if clock.ahead is None else f"; the engine's is {clock.ahead:+.0f} s from it"
    if not clock.synchronised:
        evidence = f"the kernel says that nothing keeps it right (adjtimex){apart}"
        return Finding("clock", Level.WEAK, evidence, "run a time client, such as chrony")
    return Finding("clock", Level.OK, f"synchronised, by the kernel's word (adjtimex){apart}")


def _engine(gathered: Gathered) -> list[Finding]:
    facts, chosen = gathered.engine, gathered.chosen
    if facts is None:
        remedy = "make setup, or recorder engine start"
        return [Finding("engine", Level.MISSING, gathered.refusal, remedy)]
    where = f"{chosen.docker_host}, from {chosen.origin}" if chosen else "unknown"
    described = f"{facts.product} {facts.version} (API {facts.api_version}) at {where}"
    found = [Finding("engine", Level.OK, described)]
    if facts.rootless:
        found.append(Finding("rootless", Level.OK, "SecurityOptions has name=rootless"))
    elif facts.remapped:
        found.append(Finding("rootless", Level.NOTE, "rootful with userns-remap: name=userns"))
    else:
        found.append(
            Finding(
                "rootless",
                Level.WEAK,
                "the engine is rootful and maps no users: root in a container is the host's root",
                "unset DOCKER_HOST to use the rootless engine, or set userns-remap",
            )
        )
    if facts.seccomp:
        found.append(Finding("seccomp", Level.OK, "SecurityOptions has name=seccomp"))
    else:
        found.append(
            Finding(
                "seccomp",
                Level.UNCONFINED,
                "the engine applies no seccomp profile: SecurityOptions lacks name=seccomp",
                "use an engine built with seccomp, without seccomp-profile=unconfined",
            )
        )
    found += _limits(facts)
    if facts.storage_driver == "vfs":
        found.append(
            Finding(
                "storage",
                Level.WEAK,
                "driver vfs copies the whole image for each container",
                "use overlay2 (an ext4 or xfs data root)",
            )
        )
    else:
        found.append(
            Finding("storage", Level.OK, f"driver {facts.storage_driver} at {facts.data_root}")
        )
    version = _version(facts.version)
    if version and version < VERSION_WITH_INTERNAL_RESOLVER_CLOSED and facts.product == "Engine":
        found.append(
            Finding(
                "resolver",
                Level.NOTE,
                f"engine {facts.version} may forward names from internal networks "
                "(CVE-2024-29018, fixed in 26.0); sessions have no network at all",
            )
        )
    if "/home/" in facts.data_root or "/root/" in facts.data_root:
        found.append(
            Finding(
                "data root",
                Level.WEAK,
                f"{facts.data_root} is under a home: a session sees it in /proc/mounts",
                "make setup as root or with sudo makes one under /var/lib",
            )
        )
    return found


def _limits(facts: EngineFacts) -> list[Finding]:
    control = f"cgroup v{facts.cgroup_version}, driver {facts.cgroup_driver}"
    found = []
    for subject, enforced in (
        ("memory limit", facts.enforces_memory),
        ("process limit", facts.enforces_pids),
        ("cpu limit", facts.enforces_cpu),
    ):
        if enforced:
            found.append(Finding(subject, Level.OK, f"enforced: {control}"))
        else:
            found.append(
                Finding(
                    subject,
                    Level.WEAK,
                    f"accepted and not enforced: {control}",
                    "boot with cgroup v2 and a systemd user session that delegates it",
                )
            )
    return found


def _host_for_ours(host: HostFacts) -> list[Finding]:
    """What a rootless engine needs of the host."""
    found = []
    blocked = [
        f"{name} is {value}"
        for name, value, bad in (
            ("user.max_user_namespaces", host.max_user_namespaces, 0),
            ("kernel.unprivileged_userns_clone", host.unprivileged_user_namespaces, 0),
        )
        if value == bad
    ]
    if blocked:
        found.append(
            Finding(
                "user namespaces",
                Level.UNCONFINED,
                "; ".join(blocked),
                "sysctl -w user.max_user_namespaces=28633 kernel.unprivileged_userns_clone=1",
            )
        )
    elif host.apparmor_restricts_user_namespaces == 1:
        found.append(
            Finding(
                "user namespaces",
                Level.WEAK,
                "kernel.apparmor_restrict_unprivileged_userns is 1",
                "give rootlesskit an AppArmor profile that allows userns",
            )
        )
    else:
        evidence = f"user.max_user_namespaces is {host.max_user_namespaces}"
        found.append(Finding("user namespaces", Level.OK, evidence))
    smallest = min(host.subordinate_uids, host.subordinate_gids)
    evidence = (
        f"{host.engine_user} has {host.subordinate_uids} in /etc/subuid, "
        f"{host.subordinate_gids} in /etc/subgid"
    )
    if smallest < SUBORDINATE_IDS:
        remedy = (
            f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {host.engine_user}"
        )
        found.append(Finding("subordinate ids", Level.MISSING, evidence, remedy))
    else:
        found.append(Finding("subordinate ids", Level.OK, evidence))
    if len(host.uid_map_helpers) < 2:
        held = ", ".join(host.uid_map_helpers) or "none"
        evidence = f"newuidmap and newgidmap: {held} found"
        found.append(Finding("id maps", Level.MISSING, evidence, "apt-get install uidmap"))
    else:
        found.append(Finding("id maps", Level.OK, ", ".join(host.uid_map_helpers)))
    if host.tun_mode is None:
        found.append(
            Finding(
                "tun",
                Level.MISSING,
                "/dev/net/tun is absent",
                "mknod -m 0666 /dev/net/tun c 10 200",
            )
        )
    elif host.tun_mode & 0o006 != 0o006:
        found.append(
            Finding(
                "tun",
                Level.MISSING,
                f"/dev/net/tun has mode {host.tun_mode:04o}: others cannot open it",
                "chmod 0666 /dev/net/tun",
            )
        )
    else:
        found.append(Finding("tun", Level.OK, f"/dev/net/tun has mode {host.tun_mode:04o}"))
    if "errno" not in host.seccomp_actions.split():
        found.append(
            Finding(
                "kernel seccomp",
                Level.UNCONFINED,
                f"kernel.seccomp.actions_avail is {host.seccomp_actions or 'absent'}",
                "boot a kernel with CONFIG_SECCOMP_FILTER",
            )
        )
    return found


def _ceilings(gathered: Gathered) -> list[Finding]:
    """What a host runs out of when many sessions run at once."""
    host = gathered.host
    found = []
    for subject, value, least, remedy in (
        ("keyrings", host.keyrings, 100, "sysctl -w kernel.keys.maxkeys=2000"),
        (
            "inotify instances",
            host.inotify_instances,
            64,
            "sysctl -w fs.inotify.max_user_instances=1024",
        ),
        ("open files", host.open_files, OPEN_FILES, f"ulimit -n {OPEN_FILES}"),
    ):
        if value is None:
            continue
        enough = value >= least
        level = Level.OK if enough else Level.WEAK
        found.append(Finding(subject, level, f"{value} for a user", "" if enough else remedy))
    networks = gathered.networks
    if networks is not None:
        enough = networks.ceiling - networks.used >= SPARE_NETWORKS
        found.append(
            Finding(
                "networks",
                Level.OK if enough else Level.WEAK,
                f"{networks.used} of the {networks.ceiling} that the engine's address pools hold",
                "" if enough else "docker network prune, or set default-address-pools",
            )
        )
    if host.free_bytes is not None:
        enough = host.free_bytes >= FREE_BYTES
        found.append(
            Finding(
                "free disk",
                Level.OK if enough else Level.WEAK,
                f"{host.free_bytes / 1e9:.1f} GB at {host.free_bytes_path}; "
                "a container has no disk quota",
                "" if enough else f"free {FREE_BYTES / 1e9:.0f} GB",
            )
        )
    return found


def _images(gathered: Gathered) -> list[Finding]:
    found = []
    for image in gathered.images:
        if image.identifier is None:
            remedy = "recorder images build"
            found.append(Finding(f"image {image.name}", Level.MISSING, "not built", remedy))
            continue
        revision = image.labels.get("org.opencontainers.image.revision", "unknown")
        evidence = f"{image.tag}, {image.size_bytes / 1e6:.0f} MB, of {revision[:12]}"
        found.append(Finding(f"image {image.name}", Level.OK, evidence))
    return found


def _version(text: str) -> tuple[int, int] | None:
    parts = text.split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    return int(parts[0]), int(parts[1])


def _host_facts(facts: EngineFacts | None) -> HostFacts:
    try:
        where = rootless.place()
        user, data_root = where.user, where.data_root
    except Refusal:
        # Set-up has not made the engine's user: the findings say so (no subordinate ids).
        user, data_root = rootless.USER, Path("/var/lib")
    if facts is not None and Path(facts.data_root).is_dir():
        data_root = Path(facts.data_root)
    while not data_root.is_dir():
        data_root = data_root.parent
    return HostFacts(
        engine_user=user,
        max_user_namespaces=_number("/proc/sys/user/max_user_namespaces"),
        unprivileged_user_namespaces=_number("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor_restricts_user_namespaces=_number(
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
        ),
        subordinate_uids=_subordinate("/etc/subuid", user),
        subordinate_gids=_subordinate("/etc/subgid", user),
        uid_map_helpers=tuple(
            found for name in ("newuidmap", "newgidmap") if (found := shutil.which(name))
        ),
        tun_mode=_mode("/dev/net/tun"),
        seccomp_actions=_line("/proc/sys/kernel/seccomp/actions_avail"),
        keyrings=_number("/proc/sys/kernel/keys/maxkeys"),
        inotify_instances=_number("/proc/sys/fs/inotify/max_user_instances"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        free_bytes=shutil.disk_usage(data_root).free,
        free_bytes_path=str(data_root),
    )


def _clock_is_synchronised() -> bool:
    """What the kernel says, asked with no mode set, which changes nothing."""
    state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))
    return state != TIME_ERROR


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        # An older kernel has no such setting; the finding then says that it is absent.
        return ""


def _number(path: str) -> int | None:
    text = _line(path)
    return int(text) if text.lstrip("-").isdigit() else None


def _mode(path: str) -> int | None:
    try:
        return Path(path).stat().st_mode & 0o7777
    except OSError:
        return None


def _subordinate(path: str, user: str) -> int:
    """How many ids of ``path`` are the user's; lines are ``name:first:count``."""
    total = 0
    for line in _line(path).splitlines():
        fields = line.split(":")
        if len(fields) == 3 and fields[0] == user and fields[2].isdigit():
            total += int(fields[2])
    return total

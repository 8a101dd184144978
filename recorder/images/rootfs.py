"""A Debian tree as an image's first layer: what is left out, and what is made here.

Pure: a tar stream in, a tar stream out. The trees are extracted without maintainer scripts, so the
account files, the certificate bundle and some links are made here, and all that tells of the host
(resolver, mirror address, apt's lists) is left out.
"""

from __future__ import annotations

import fnmatch
import io
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from recorder.refusal import ExitCode, Refusal

# Trees that the image has as empty directories only: the engine fills them when a container starts.
EMPTY = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/log", "var/tmp", "var/lib/apt/lists")

# Left out with all that is below: the host's own facts first, then what no program reads.
LEFT_OUT = (
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/group",
    "etc/group-",
    "etc/hostname",
    "etc/passwd",
    "etc/passwd-",
    "etc/resolv.conf",
    "boot",
    "home",
    "media",
    "mnt",
    "srv",
    "usr/lib/python3*/idlelib",
    "usr/lib/python3*/test",
    "usr/lib/python3*/turtledemo",
    "usr/share/bug",
    "usr/share/doc-base",
    "usr/share/gitweb",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
)

BUNDLE = "etc/ssl/certs/ca-certificates.crt"
AUTHORITIES = "usr/share/ca-certificates/"
ACCOUNTS_MASTER = "usr/share/base-passwd/passwd.master"
GROUPS_MASTER = "usr/share/base-passwd/group.master"
NAME_SERVICES = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"


@dataclass(frozen=True)
class Account:
    """One account of the image; its group has the same name and number."""

    name: str
    uid: int
    home: str


@dataclass(frozen=True)
class Rootfs:
    """What a ``rootfs.toml`` declares."""

    suite: str
    packages: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    accounts: tuple[Account, ...]


def read_rootfs(text: str, name: str) -> Rootfs:
    """Read a ``rootfs.toml``; ``name`` is for the refusal (2) alone."""
    try:
        document = tomllib.loads(text)
        accounts: list[Account] = []
        for entry in document.get("accounts", []):
            first, count = int(entry["uid"]), int(entry.get("count", 1))
            for slot in range(count):
                suffix = str(slot) if slot else ""
                accounts.append(Account(f"{entry['name']}{suffix}", first + slot, entry["home"]))
        return Rootfs(
            suite=document["suite"],
            packages=tuple(document["packages"]),
            links=tuple(sorted(document.get("links", {}).items())),
            accounts=tuple(accounts),
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise Refusal(ExitCode.USAGE, f"{name}: not a rootfs declaration: {error}") from error


def is_left_out(path: str) -> bool:
    """Whether the image goes without ``path`` (relative, no leading slash)."""
    if any(path.startswith(f"{directory}/") for directory in EMPTY):
        return True
    parts = path.split("/")
    ancestors = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    if any(fnmatch.fnmatchcase(a, pattern) for a in ancestors for pattern in LEFT_OUT):
        return True
    # Licences stay, the rest of the documentation goes.
    return path.startswith("usr/share/doc/") and len(parts) > 4 and parts[-1] != "copyright"


def neutral(source: IO[bytes], destination: IO[bytes], rootfs: Rootfs) -> int:
    """Rewrite the tar stream ``source`` into ``destination``; the number of entries written.

    No entry keeps a set-id bit: nothing in these images changes its user but the guard, and that
    one starts as root.
    """
    kept: dict[str, bytes] = {}
    authorities: dict[str, bytes] = {}
    seen: set[str] = set()
    count = 0
    newest = 0
    with (
        tarfile.open(fileobj=source, mode="r|") as incoming,
        tarfile.open(fileobj=destination, mode="w|", format=tarfile.GNU_FORMAT) as outgoing,
    ):
        for member in incoming:
            path = member.name.removeprefix("./").strip("/")
            if path in ("", "."):
                continue
            if is_left_out(path):
                continue
            member.name = path
            member.mode &= 0o1777
            member.uname = member.gname = ""
            newest = max(newest, int(member.mtime))
            body = incoming.extractfile(member) if member.isreg() else None
            if body is not None and (
                path.startswith(AUTHORITIES) or path in (ACCOUNTS_MASTER, GROUPS_MASTER)
            ):
                content = body.read()
                body = io.BytesIO(content)
                (authorities if path.startswith(AUTHORITIES) else kept)[path] = content
            outgoing.addfile(member, body)
            seen.add(path)
            count += 1
        for name, content in _made(kept, authorities, rootfs).items():
            if name in seen:
                continue
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size, entry.mtime = 0o644, len(content), newest
            outgoing.addfile(entry, io.BytesIO(content))
            count += 1
        for name, target in rootfs.links:
            path = name.strip("/")
            if path in seen:
                continue
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            entry.mtime = newest
            outgoing.addfile(entry)
            count += 1
    return count


def _made(
    kept: Mapping[str, bytes], authorities: Mapping[str, bytes], rootfs: Rootfs
) -> dict[str, bytes]:
    """The files that maintainer scripts make: path to content."""
    if not authorities:
        raise Refusal(
            ExitCode.MISSING,
            "the Debian tree has no certificate authorities: add ca-certificates to rootfs.toml",
        )
    missing = [name for name in (ACCOUNTS_MASTER, GROUPS_MASTER) if name not in kept]
    if missing:
        raise Refusal(
            ExitCode.MISSING,
            f"the Debian tree has no {missing[0]}: add base-passwd to rootfs.toml",
        )
    passwd, group = kept[ACCOUNTS_MASTER].decode(), kept[GROUPS_MASTER].decode()
    passwd = passwd.replace("root:*:", "root:x:", 1)
    for account in rootfs.accounts:
        passwd += f"{account.name}:x:{account.uid}:{account.uid}::{account.home}:/bin/bash\n"
        group += f"{account.name}:x:{account.uid}:\n"
    bundle = b"".join(content.rstrip(b"\n") + b"\n" for _, content in sorted(authorities.items()))
    return {
        "etc/passwd": passwd.encode(),
        "etc/group": group.encode(),
        "etc/nsswitch.conf": NAME_SERVICES.encode(),
        "etc/resolv.conf": b"",
        "etc/hostname": b"recorder\n",
        BUNDLE: bundle,
    }

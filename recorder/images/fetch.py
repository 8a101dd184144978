"""What the host's own clients fetch for the images: Debian trees, the harness, wheels.

Everything lands in a cache directory under a name made of the digest of what was asked for, so a
second run asks nobody. The clients' configuration (mirror, proxy, certificates) is the host's; none
of it is written into what is fetched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from recorder.images.rootfs import neutral, read_rootfs
from recorder.refusal import ExitCode, Refusal

# Raised when what is made of the same inputs changes: part of every cache key.
FORM = "1"

# The Python of the images' Debian, for which wheels are fetched.
IMAGE_PYTHON = "3.13"

FETCH_DEADLINE_SECONDS = 900

# Run in the extracted tree. Byte code is believed unchecked: the tree never changes afterwards.
EXTRACT_HOOK = (
    'chroot "$1" /sbin/ldconfig; '
    'chroot "$1" /bin/sh -c "python3 -m compileall -q -j 2 --invalidation-mode unchecked-hash '
    '/usr/lib/python3.*"'
)

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Progress for whoever shows none."""


@dataclass(frozen=True)
class Machine:
    """One architecture, in the words of npm and of wheels."""

    npm: str
    wheels: tuple[str, ...]


MACHINES = {
    "x86_64": Machine(
        "linux-x64",
        ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64"),
    ),
    "aarch64": Machine(
        "linux-arm64",
        (
            "manylinux_2_28_aarch64",
            "manylinux_2_17_aarch64",
            "manylinux2014_aarch64",
            "linux_aarch64",
        ),
    ),
}


@dataclass(frozen=True)
class Fetched:
    """One fetched file and the digest of what was asked for."""

    path: Path
    inputs: str


class Fetcher:
    """Fetches into ``cache`` what is not there yet, one process at a time."""

    def __init__(self, cache: Path, progress: Progress) -> None:
        self.cache = cache
        self._progress = progress

    def rootfs(self, declaration: Path) -> Fetched:
        """The Debian tree of ``declaration`` (a ``rootfs.toml``), as an uncompressed tar."""
        text = _text(declaration)
        rootfs = read_rootfs(text, str(declaration))
        recipe = (Path(__file__).parent / "rootfs.py").read_text(encoding="utf-8")
        inputs = _digest("rootfs", text, recipe, EXTRACT_HOOK, platform.machine())

        def make(destination: Path) -> None:
            program = _need("mmdebstrap", "apt-get install mmdebstrap")
            name = declaration.parent.name
            self._progress(f"{name}: extracting {len(rootfs.packages)} packages of {rootfs.suite}")
            with tempfile.TemporaryDirectory(dir=self.cache, prefix="apt-") as work:
                sources = Path(work, "sources.list")
                sources.write_text(mirror_lines(rootfs.suite), encoding="utf-8")
                options = Path(work, "apt.conf")
                options.write_text(_apt_options(), encoding="utf-8")
                log = Path(work, "log")
                command = [
                    program,
                    "--variant=extract",
                    "--format=tar",
                    f"--include={','.join(rootfs.packages)}",
                    f"--aptopt={options}",
                    f"--extract-hook={EXTRACT_HOOK}",
                    rootfs.suite,
                    "-",
                    str(sources),
                ]
                with log.open("wb") as errors, destination.open("wb") as output:
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                    )
                    stream = cast("IO[bytes]", process.stdout)
                    failure: tarfile.TarError | None = None
                    try:
                        neutral(stream, output, rootfs)
                        while stream.read(1 << 20):
                            pass
                    except tarfile.TarError as error:
                        failure = error
                    finally:
                        stream.close()
                        status = process.wait()
                if status != 0 or failure is not None:
                    raise Refusal(
                        ExitCode.MISSING,
                        f"mmdebstrap could not make the tree of {declaration}: "
                        f"{_last_lines(log.read_text(errors='replace'))}",
                    )

        return self._kept("rootfs", ".tar", inputs, make)

    def harness(self, folder: Path) -> Fetched:
        """The harness that ``folder``'s package.json and package-lock.json pin, one native file."""
        manifest, lock = _text(folder / "package.json"), _text(folder / "package-lock.json")
        machine = _machine()
        inputs = _digest("harness", manifest, lock, machine.npm)
        (package, version), *others = json.loads(manifest)["dependencies"].items()
        if others:
            raise Refusal(
                ExitCode.USAGE, f"{folder / 'package.json'}: one dependency, the harness, is pinned"
            )

        def make(destination: Path) -> None:
            self._progress(f"session: fetching {package} {version}")
            with tempfile.TemporaryDirectory(dir=self.cache, prefix="npm-") as work:
                self._npm_packages(folder, Path(work), folder)
                binary = Path(work, "node_modules", f"{package}-{machine.npm}", "claude")
                if not binary.is_file():
                    raise Refusal(
                        ExitCode.MISSING,
                        f"{package} {version} brought no {machine.npm} program: "
                        f"see {folder / 'package-lock.json'}",
                    )
                binary.replace(destination)

        return self._kept("harness", "", inputs, make)

    def packages(self, folder: Path, client: Path) -> Fetched:
        """The npm packages that ``folder`` pins, as an uncompressed tar of ``node_modules``.

        ``client``: the folder whose lock pins an npm for a host that has none.
        """
        inputs = _digest(
            "packages", _text(folder / "package.json"), _text(folder / "package-lock.json")
        )

        def make(destination: Path) -> None:
            self._progress(f"{folder.name}: fetching npm packages")
            with tempfile.TemporaryDirectory(dir=self.cache, prefix="npm-") as work:
                self._npm_packages(folder, Path(work), client)
                with tarfile.open(destination, "w", format=tarfile.GNU_FORMAT) as archive:
                    archive.add(Path(work, "node_modules"), arcname=".", filter=_plain)

        return self._kept("packages", ".tar", inputs, make)

    def site(self, lock: Path, left_out: Sequence[str] = ()) -> Fetched:
        """The wheels of ``lock`` unpacked for the images' Python, as an uncompressed tar.

        ``left_out``: patterns of paths (relative to the site directory) the image goes without.
        """
        text = _text(lock)
        machine = _machine()
        inputs = _digest("site", text, IMAGE_PYTHON, repr(tuple(left_out)), *machine.wheels)

        def make(destination: Path) -> None:
            self._progress(f"{lock.parent.name}: fetching wheels")
            with tempfile.TemporaryDirectory(dir=self.cache, prefix="site-") as work:
                target = Path(work, "site")
                command = [
                    *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input"),
                    *("--no-compile", "--no-deps", "--require-hashes", "--only-binary=:all:"),
                    # The pins are for the image's Python; pip would hold them against the host's.
                    "--ignore-requires-python",
                    *("--target", str(target), "--python-version", IMAGE_PYTHON),
                    *("--implementation", "cp", "--abi", "cp" + IMAGE_PYTHON.replace(".", "")),
                    *("--abi", "abi3", "--abi", "none"),
                ]
                for tag in (*machine.wheels, "any"):
                    command += ["--platform", tag]
                _run([*command, "-r", str(lock)], cwd=Path(work))
                patterns = [re.compile(pattern) for pattern in left_out]

                def select(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
                    name = entry.name.removeprefix("./")
                    if any(pattern.match(name) for pattern in patterns):
                        return None
                    return _plain(entry)

                with tarfile.open(destination, "w", format=tarfile.GNU_FORMAT) as archive:
                    archive.add(target, arcname=".", filter=select)

        return self._kept("site", ".tar", inputs, make)

    def _npm_packages(self, folder: Path, work: Path, client: Path) -> None:
        """What ``folder``'s package-lock.json pins, under ``work/node_modules``; no script runs."""
        for name in ("package.json", "package-lock.json"):
            shutil.copy(folder / name, work)
        _run(
            [
                *self._npm(client),
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
                f"--cache={work}/cache",
            ],
            cwd=work,
        )

    def _npm(self, folder: Path) -> list[str]:
        """The host's npm; where there is none, the one that a wheel brings (pinned, hashed)."""
        found = shutil.which("npm")
        if found is not None:
            return [found]
        lock = folder / "npm-client.lock"
        inputs = _digest("npm", _text(lock), sys.version)
        environment = self.cache / f"npm-client-{inputs[:16]}"
        ready = environment / "ready"
        if not ready.exists():
            self._progress("session: no npm on this host: fetching one")
            shutil.rmtree(environment, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(environment)], cwd=self.cache)
            _run(
                [
                    *(str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"),
                    *("--no-input", "--no-deps", "--require-hashes", "--only-binary=:all:"),
                    *("-r", str(lock)),
                ],
                cwd=self.cache,
            )
            ready.touch()
        return [str(environment / "bin" / "npm")]

    def _kept(self, kind: str, suffix: str, inputs: str, make: Callable[[Path], None]) -> Fetched:
        path = self.cache / f"{kind}-{inputs[:16]}{suffix}"
        if path.exists():
            return Fetched(path, inputs)
        with locked(self.cache / "lock"):
            if not path.exists():
                partial = path.with_name(f"{path.name}.partial")
                try:
                    make(partial)
                    partial.replace(path)
                finally:
                    partial.unlink(missing_ok=True)
        return Fetched(path, inputs)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at ``path`` alone among processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mirror_lines(suite: str) -> str:
    """apt source lines for ``suite`` at the mirror the host's own apt uses, in whatever form."""
    host = _host_codename()
    records = _index_targets(("Created-By: Packages", "Origin: Debian"), release_info=True)
    if not records:
        records = _index_targets(("Created-By: Packages",), release_info=False)
    lines: dict[str, None] = {}
    for record in records:
        release = record.get("Release", "")
        suffix = release.removeprefix(host)
        if not release.startswith(host) or suffix not in ("", "-updates", "-security"):
            continue
        if record.get("Component") != "main":
            continue
        options = []
        if Path(DEBIAN_KEYRING).exists():
            options.append(f"signed-by={DEBIAN_KEYRING}")
        if record.get("Trusted") == "yes":
            options.append("trusted=yes")
        bracket = f"[{' '.join(options)}] " if options else ""
        lines[f"deb {bracket}{record['Repo-URI']} {suite}{suffix} main"] = None
    if not any(line.endswith(f" {suite} main") for line in lines):
        raise Refusal(
            ExitCode.MISSING,
            f"apt knows no Debian mirror ({host} main): add one to /etc/apt/sources.list "
            "and run apt-get update",
        )
    return "\n".join(lines) + "\n"


DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def _host_codename() -> str:
    for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise Refusal(ExitCode.MISSING, "/etc/os-release names no codename: a Debian host is needed")


def _index_targets(filters: Sequence[str], *, release_info: bool) -> list[dict[str, str]]:
    program = _need("apt-get", "run on Debian")
    options = [] if release_info else ["--no-release-info"]
    listing = _run([program, "indextargets", *options, *filters], cwd=Path("/"))
    records = []
    for paragraph in listing.split("\n\n"):
        fields = (line.partition(": ") for line in paragraph.splitlines())
        record = {key: value for key, separator, value in fields if separator}
        if record:
            records.append(record)
    return records


def _apt_options() -> str:
    """The host's way to its mirrors: proxies, certificates and date checks, as apt options."""
    dump = _run(["apt-config", "dump", "--no-empty"], cwd=Path("/"))
    wanted = re.compile(
        r"Acquire::(https?|Check-Valid-Until|Check-Date|Retries|By-Hash)\b", re.IGNORECASE
    )
    return "".join(f"{line}\n" for line in dump.splitlines() if wanted.match(line))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, readable by all, writable by root alone."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def _machine() -> Machine:
    name = platform.machine()
    if name not in MACHINES:
        raise Refusal(ExitCode.MISSING, f"no images for {name}: {', '.join(MACHINES)} are known")
    return MACHINES[name]


def _need(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Refusal(ExitCode.MISSING, f"{program} is missing: {remedy}")
    return found


def _run(command: Sequence[str], cwd: Path) -> str:
    try:
        result = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_DEADLINE_SECONDS,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except FileNotFoundError as error:
        raise Refusal(ExitCode.MISSING, f"{command[0]} is missing: run make setup") from error
    except subprocess.TimeoutExpired as error:
        raise Refusal(
            ExitCode.MISSING,
            f"{command[0]} did not end within {FETCH_DEADLINE_SECONDS} s: try again",
        ) from error
    if result.returncode != 0:
        raise Refusal(
            ExitCode.MISSING,
            f"{Path(command[0]).name} failed with {result.returncode}: "
            f"{_last_lines(result.stderr or result.stdout)}",
        )
    return result.stdout


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:]) or "it said nothing"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Refusal(ExitCode.MISSING, f"{path}: {error.strerror}: is the checkout whole?") from (
            error
        )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join((FORM, *parts)).encode()).hexdigest()

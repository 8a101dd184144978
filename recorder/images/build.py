"""Builds the images: no registry, no network in a build, nothing of the host but what is named.

Every build goes through the engine's plain build call with a context that is made here, entry by
entry, so that owners and modes are what this file says. An image carries the digest of what went
into it (label ``recorder.inputs``); while that is unchanged its build is skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast

import docker
import docker.errors
import requests.exceptions

import recorder
from recorder.images.fetch import Fetched, Fetcher, Progress, locked, silent
from recorder.refusal import ExitCode, Refusal

PROJECT = Path(recorder.__file__).parent.parent
FOLDER = PROJECT / "images"
CACHE = PROJECT / ".build"

INPUTS_LABEL = "recorder.inputs"
BUILD_DEADLINE_SECONDS = 900

SIDECAR_UID = 990

# Where the images' Python looks for packages, with or without -I.
PACKAGES = "usr/lib/python3/dist-packages"

# Parts of the sidecar's wheels that no sidecar runs: the web interface, the tests, the packet
# redirector of local capture mode. Paths relative to the site directory.
PROXY_LEFT_OUT = (
    r"bin(/|$)",
    r"mitmproxy/tools/web/(static|templates)(/|$)",
    r"mitmproxy_linux/.*redirector",
    r".*/tests?(/|$)",
)


def image_tag(name: str) -> str:
    """The tag of image ``name``: ``recorder-<name>:<version>``."""
    return f"recorder-{name}:{recorder.__version__}"


@dataclass(frozen=True)
class Entry:
    """One entry of a build context or of a tar in it: a directory where ``content`` is None."""

    path: str
    content: Path | bytes | None
    mode: int
    uid: int = 0
    identity: str = ""  # the digest that stands for a large content; else the content is hashed


@dataclass(frozen=True)
class Layer:
    """A tar inside the context; the build unpacks it with every owner and mode as given."""

    path: str
    entries: tuple[Entry, ...]


Member = Entry | Layer


@dataclass(frozen=True)
class Image:
    """How one image is made."""

    name: str
    title: str
    dockerfile: Path
    members: Callable[[Fetcher], Sequence[Member]]
    parent: str | None = None


@dataclass(frozen=True)
class Built:
    """One image after a build."""

    name: str
    tag: str
    identifier: str
    size_bytes: int
    seconds: float
    skipped: bool


@dataclass(frozen=True)
class ImageState:
    """What the engine holds of one image. ``identifier`` is None where it is not built."""

    name: str
    tag: str
    identifier: str | None = None
    size_bytes: int = 0
    labels: dict[str, str] = field(default_factory=dict)


def _file(fetched: Fetched, path: str, mode: int = 0o644) -> Entry:
    return Entry(path, fetched.path, mode, identity=fetched.inputs)


def _project_files(folder: Path, into: str) -> list[Entry]:
    """The project's own files under ``folder``, in name order, without byte code."""
    entries = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if "__pycache__" in relative.parts or path.suffix == ".pyc" or not path.is_file():
            continue
        mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        entries.append(Entry(f"{into}/{relative}", path, mode))
    return entries


def _base(fetcher: Fetcher) -> Sequence[Member]:
    return [_file(fetcher.rootfs(FOLDER / "base" / "rootfs.toml"), "rootfs.tar")]


def _foundation(fetcher: Fetcher) -> Sequence[Member]:
    harness = fetcher.harness(FOLDER / "session")
    return [
        _file(fetcher.rootfs(FOLDER / "session" / "rootfs.toml"), "rootfs.tar"),
        Layer(
            "harness.tar",
            (
                Entry("opt/harness", None, 0o755),
                _file(harness, "opt/harness/claude", 0o711),
            ),
        ),
    ]


def _session(_: Fetcher) -> Sequence[Member]:
    code = PROJECT / "recorder" / "session"
    entries = [
        Entry(directory, None, 0o755)
        for directory in (
            "etc/claude-code",
            "etc/recorder",
            "opt/recorder",
            "run/recorder",
            "session",
            "session/config",
            "session/log",
            "workspace",
        )
    ]
    entries.extend(
        Entry(f"opt/recorder/{name}", code / name, 0o644)
        for name in ("guard.py", "forwarder.py", "attack.py")
    )
    return [Layer("tree.tar", tuple(entries))]


def _layer(path: str, entries: Sequence[Entry]) -> Layer:
    """A layer of ``entries`` and of the directories on the way to them, 0755 and root's."""
    declared = {entry.path for entry in entries}
    missing = {
        str(parent)
        for entry in entries
        for parent in PurePosixPath(entry.path).parents
        if str(parent) != "." and str(parent) not in declared
    }
    directories = [Entry(name, None, 0o755) for name in sorted(missing)]
    return Layer(path, (*directories, *entries))


def _proxy(fetcher: Fetcher) -> Sequence[Member]:
    lock = FOLDER / "proxy" / "requirements.lock"
    return [
        _file(fetcher.site(lock, PROXY_LEFT_OUT), "site.tar"),
        _layer(
            "tree.tar",
            [
                *_project_files(PROJECT / "proxy", "opt/recorder/proxy"),
                Entry("run/recorder", None, 0o755, uid=SIDECAR_UID),
                Entry("var/log/recorder", None, 0o755, uid=SIDECAR_UID),
            ],
        ),
    ]


def _recorder(fetcher: Fetcher) -> Sequence[Member]:
    lock = FOLDER / "recorder" / "requirements.lock"
    return [
        _file(fetcher.site(lock), "site.tar"),
        _layer(
            "tree.tar",
            [
                *_project_files(PROJECT / "recorder", f"{PACKAGES}/recorder"),
                *_project_files(PROJECT / "proxy", f"{PACKAGES}/proxy"),
            ],
        ),
    ]


IMAGES: dict[str, Image] = {
    image.name: image
    for image in (
        Image("base", "Recorder base", FOLDER / "base" / "Dockerfile", _base),
        Image(
            "session-foundation",
            "Recorder session foundation",
            FOLDER / "session" / "foundation.Dockerfile",
            _foundation,
        ),
        Image(
            "session",
            "Recorder session",
            FOLDER / "session" / "Dockerfile",
            _session,
            parent="session-foundation",
        ),
        Image("proxy", "Recorder sidecar", FOLDER / "proxy" / "Dockerfile", _proxy, parent="base"),
        Image("recorder", "Recorder", FOLDER / "recorder" / "Dockerfile", _recorder, parent="base"),
    )
}

# What a user asks for; what these are made from comes along.
IMAGE_NAMES = ("base", "session", "proxy", "recorder")


def build_images(
    client: docker.DockerClient,
    names: Sequence[str] = IMAGE_NAMES,
    progress: Progress = silent,
    cache: Path = CACHE,
) -> list[Built]:
    """Build what is missing or out of date of ``names`` and their parents, in order.

    Refuses with 2 for an unknown name and 3 where something cannot be fetched or built.
    """
    fetcher = Fetcher(cache, progress)
    order: list[Image] = []
    for name in names:
        for image in _with_parents(name):
            if image not in order:
                order.append(image)
    inputs: dict[str, str] = {}
    built = []
    for image in order:
        started = time.monotonic()
        members = image.members(fetcher)
        parent = inputs[image.parent] if image.parent is not None else ""
        digest = inputs_digest(image, members, parent)
        inputs[image.name] = digest
        state = _state(client, image)
        skipped = state.labels.get(INPUTS_LABEL) == digest
        if not skipped:
            with locked(cache / "build.lock"):
                # Another process may have built it while this one waited.
                state = _state(client, image)
                skipped = state.labels.get(INPUTS_LABEL) == digest
                if not skipped:
                    progress(f"{image.name}: building {image_tag(image.name)}")
                    _build(client, image, members, digest)
                    state = _state(client, image)
                    _remove_replaced(client)
        if state.identifier is None:
            raise Refusal(ExitCode.MISSING, f"{image_tag(image.name)}: built, and not there")
        built.append(
            Built(
                image.name,
                image_tag(image.name),
                state.identifier,
                state.size_bytes,
                time.monotonic() - started,
                skipped,
            )
        )
    return built


def list_images(client: docker.DockerClient) -> list[ImageState]:
    """What the engine holds of each image a user may ask for."""
    return [_state(client, IMAGES[name]) for name in IMAGE_NAMES]


def _with_parents(name: str) -> list[Image]:
    if name not in IMAGES:
        raise Refusal(ExitCode.USAGE, f"no image {name}: there are {', '.join(IMAGE_NAMES)}")
    image = IMAGES[name]
    before = _with_parents(image.parent) if image.parent is not None else []
    return [*before, image]


def inputs_digest(image: Image, members: Sequence[Member], parent: str) -> str:
    """The digest of all that decides what ``image`` becomes: recipe, context, parent."""
    whole = hashlib.sha256()

    def add(*parts: str) -> None:
        for part in parts:
            whole.update(f"{len(part.encode())}:{part}".encode())

    add(image.title, recorder.__version__, parent, image.dockerfile.read_text(encoding="utf-8"))
    for member in members:
        entries = member.entries if isinstance(member, Layer) else (member,)
        add(member.path, type(member).__name__)
        for entry in entries:
            add(entry.path, oct(entry.mode), str(entry.uid), entry.identity or _content(entry))
    return whole.hexdigest()


def _content(entry: Entry) -> str:
    if entry.content is None:
        return "directory"
    data = entry.content if isinstance(entry.content, bytes) else _read(entry.content)
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refusal(
            ExitCode.MISSING, f"{path}: {error.strerror}: is the checkout whole?"
        ) from error


def context(image: Image, members: Sequence[Member], labels: Mapping[str, str]) -> Iterator[bytes]:
    """The build context as the chunks of a tar stream; nothing is written to disk.

    The labels are one instruction at the recipe's end: given to the engine they would be one each,
    and an instruction costs a second.
    """
    said = " ".join(
        f"{name}={json.dumps(value)}".replace("$", r"\$") for name, value in sorted(labels.items())
    )
    text = f"{image.dockerfile.read_text(encoding='utf-8')}LABEL {said}\n"
    recipe = Entry("Dockerfile", text.encode(), 0o644)
    for member in (recipe, *members):
        if isinstance(member, Layer):
            size = sum(_padded(entry) for entry in member.entries) + 1024
            yield _header(member.path, size, 0o644, 0, is_directory=False)
            for entry in member.entries:
                yield from _entry_chunks(entry)
            yield b"\0" * 1024
            yield b"\0" * (-size % 512)
        else:
            yield from _entry_chunks(member)
    yield b"\0" * 1024


def _size(entry: Entry) -> int:
    if entry.content is None:
        return 0
    return len(entry.content) if isinstance(entry.content, bytes) else entry.content.stat().st_size


def _padded(entry: Entry) -> int:
    header = _header(entry.path, _size(entry), entry.mode, entry.uid, entry.content is None)
    return len(header) + _size(entry) + (-_size(entry) % 512)


# One fixed time for what the project adds. Not 0: mitmproxy ignores an addon with mtime 0.
CONTEXT_TIME = 1_577_836_800


def _header(path: str, size: int, mode: int, uid: int, is_directory: bool) -> bytes:
    info = tarfile.TarInfo(path)
    info.type = tarfile.DIRTYPE if is_directory else tarfile.REGTYPE
    info.size, info.mode, info.uid, info.gid, info.mtime = size, mode, uid, uid, CONTEXT_TIME
    return info.tobuf(tarfile.GNU_FORMAT)


def _entry_chunks(entry: Entry) -> Iterator[bytes]:
    size = _size(entry)
    yield _header(entry.path, size, entry.mode, entry.uid, entry.content is None)
    if entry.content is None:
        return
    stream = (
        io.BytesIO(entry.content) if isinstance(entry.content, bytes) else entry.content.open("rb")
    )
    with stream:
        left = size
        while left:
            chunk = stream.read(min(left, 1 << 20))
            if not chunk:
                raise Refusal(ExitCode.MISSING, f"{entry.content!r} changed while it was read")
            left -= len(chunk)
            yield chunk
    yield b"\0" * (-size % 512)


def _state(client: docker.DockerClient, image: Image) -> ImageState:
    tag = image_tag(image.name)
    try:
        found = client.images.get(tag)
    except docker.errors.ImageNotFound:
        return ImageState(image.name, tag)
    return ImageState(
        image.name, tag, str(found.id), int(found.attrs["Size"]), dict(found.labels or {})
    )


def _build(
    client: docker.DockerClient, image: Image, members: Sequence[Member], digest: str
) -> None:
    labels = {
        "org.opencontainers.image.title": image.title,
        "org.opencontainers.image.version": recorder.__version__,
        "org.opencontainers.image.revision": _revision(),
        INPUTS_LABEL: digest,
    }
    arguments = {} if image.parent is None else {"PARENT": image_tag(image.parent)}
    lines: list[str] = []
    try:
        for event in client.api.build(
            fileobj=cast(
                "IO[bytes]", context(image, members, labels)
            ),  # requests takes an iterator
            custom_context=True,
            tag=image_tag(image.name),
            buildargs=arguments,
            network_mode="none",
            rm=True,
            forcerm=True,
            pull=False,
            decode=True,
            timeout=BUILD_DEADLINE_SECONDS,
        ):
            if "error" in event:
                said = " / ".join([*lines[-2:], event["error"].strip()])
                raise Refusal(ExitCode.MISSING, f"{image_tag(image.name)} does not build: {said}")
            if text := event.get("stream", "").strip():
                lines.append(text)
    except (docker.errors.APIError, requests.exceptions.RequestException) as error:
        raise Refusal(
            ExitCode.MISSING, f"{image_tag(image.name)} does not build: {error}"
        ) from error


def _remove_replaced(client: docker.DockerClient) -> None:
    """Remove images of ours that have lost their tag, unless a container still needs one."""
    for image in client.images.list(filters={"dangling": True, "label": INPUTS_LABEL}):
        # 409: in use, so it stays until a later build; 404: its parent's removal took it along.
        with contextlib.suppress(docker.errors.APIError):
            client.api.remove_image(str(image.id))


def _revision() -> str:
    """The checkout's commit, ``-changed`` where it has changes, ``unknown`` outside git."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = "-changed" if _git("status", "--porcelain", "--untracked-files=no") else ""
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}{changed}"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(PROJECT), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout.strip()

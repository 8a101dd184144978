"""Keys on disk: outside every batch, mode 0600, and whom this user trusts.

``$RECORDER_KEYS``, else ``$XDG_CONFIG_HOME/recorder/keys``, else ``~/.config/recorder/keys``, holds
``<name>.key`` and ``<name>.pub``; its directory ``trusted`` holds public keys of others.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from recorder.evidence.signing import EnvelopeError, key_id, public_pem, read_public
from recorder.refusal import ExitCode, Refusal

DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Trusted:
    """A key that this user trusts, by the name it is kept under."""

    name: str
    key: Ed25519PublicKey

    @property
    def id(self) -> str:
        return key_id(self.key)


def key_directory(environment: Mapping[str, str] = os.environ) -> Path:
    if directory := environment.get("RECORDER_KEYS"):
        return Path(directory)
    configuration = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(configuration) / "recorder" / "keys"


def new_key(directory: Path, name: str) -> Trusted:
    """Make a key pair. Refusal 2 where the name is taken: a key is never written over."""
    _require_name(name)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        _write(directory / f"{name}.key", private, 0o600)
        _write(directory / f"{name}.pub", public_pem(key.public_key()), 0o644)
    except FileExistsError as error:
        raise Refusal(
            ExitCode.USAGE, f"{error.filename}: is there already: give the new key another name"
        ) from error
    return Trusted(name, key.public_key())


def own_key(directory: Path, name: str) -> Ed25519PrivateKey | None:
    """A private key; None where there is none. Refusal 2 where others may read it."""
    path = directory / f"{_require_name(name)}.key"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise Refusal(
                ExitCode.USAGE, f"{path}: others may read this key: chmod 600 it, or make a new one"
            )
        data = file.read()
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise Refusal(ExitCode.USAGE, f"{path}: is no private key in PEM form") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise Refusal(ExitCode.USAGE, f"{path}: is no Ed25519 key")
    return key


def trusted_keys(directory: Path) -> tuple[Trusted, ...]:
    """This user's own keys and those that were trusted, by name."""
    return tuple(
        Trusted(path.stem, public_of(path))
        for folder in (directory, directory / "trusted")
        for path in sorted(folder.glob("*.pub"))
    )


def trust(directory: Path, name: str, file: Path) -> Trusted:
    """Keep another's public key under a name. Refusal 2 for no key, or for a name that is taken."""
    _require_name(name)
    key = public_of(file)
    folder = directory / "trusted"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        _write(folder / f"{name}.pub", public_pem(key), 0o644)
    except FileExistsError as error:
        raise Refusal(
            ExitCode.USAGE, f"{error.filename}: is there already: trust it under another name"
        ) from error
    return Trusted(name, key)


def public_of(path: Path) -> Ed25519PublicKey:
    """The public key of a file. Refusal 2 where it is none."""
    try:
        return read_public(path.read_bytes())
    except OSError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error.strerror}: name a public key") from error
    except EnvelopeError as error:
        raise Refusal(ExitCode.USAGE, f"{path}: {error}") from error


def _require_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise Refusal(ExitCode.USAGE, f"{name!r}: a key's name is letters, digits, `.`, `_`, `-`")
    return name


def _write(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

"""The host's credential: where it is found, what a session is given of it, and how long it lasts.

Sealed (the default) nothing of it reaches the session: the placeholder stands in its place, and
the sidecar puts the real one in on the way out. A copy is the harness' own file, whole.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import (
    PLACEHOLDER_KEY,
    PLACEHOLDER_REFRESH,
    PLACEHOLDER_TOKEN,
)
from recorder.session.sidecar import Credential

Choice = Literal["api-key", "bearer", "claude", "copy"]
CHOICES: tuple[Choice, ...] = get_args(Choice)

CLAUDE_FILE = ".credentials.json"
_MEMBER = "claudeAiOauth"
_TOKEN = "accessToken"  # noqa: S105
_REFRESH = "refreshToken"
_EXPIRES = "expiresAt"
# What stands in a sealed file beside the tokens: how the harness picks its models and its headers.
_KEPT = ("scopes", "subscriptionType", "rateLimitTier")

# What a rehearsal's file says beside its token.
SCOPES = ("user:inference", "user:profile", "user:sessions:claude_code")
REHEARSED_SECONDS = 30 * 86400.0


def find_credential(
    choice: Choice | None, environment: Mapping[str, str], directory: Path
) -> Credential | None:
    """The credential of the kind that was chosen, else the first that the host has.

    ``directory`` is the host's configuration directory of Claude Code. None where the host has
    none and none was chosen. Refusal 3 where the chosen one is not there; 2 for a broken file.
    """
    key = environment.get("ANTHROPIC_API_KEY", "")
    bearer = environment.get("ANTHROPIC_AUTH_TOKEN", "")
    token = environment.get("CLAUDE_CODE_OAUTH_TOKEN", "")
    path = directory / CLAUDE_FILE
    match choice:
        case "api-key":
            if not key:
                raise _missing("api-key", "set ANTHROPIC_API_KEY")
            return Credential("api_key", key)
        case "bearer":
            if not bearer and not token:
                raise _missing("bearer", "set ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN")
            return _bearer(bearer, token)
        case "claude" | "copy":
            return _read_claude(path, copied=choice == "copy")
        case None:
            if key:
                return Credential("api_key", key)
            if bearer or token:
                return _bearer(bearer, token)
            return _read_claude(path, copied=False) if path.exists() else None


def _bearer(bearer: str, token: str) -> Credential:
    if bearer:
        return Credential("bearer", bearer, "bearer")
    return Credential("bearer", token, "oauth-token")


def _missing(choice: str, remedy: str) -> Refusal:
    return Refusal(ExitCode.MISSING, f"credentials {choice}: the host has none: {remedy}")


def _read_claude(path: Path, *, copied: bool) -> Credential:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise _missing("copy" if copied else "claude", f"{path} is absent: log in first") from error
    try:
        told = json.loads(data)[_MEMBER]
        value, expires = told[_TOKEN], told.get(_EXPIRES)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # No word of the file is told: the words are secrets.
        raise Refusal(
            ExitCode.USAGE, f"{path}: holds no {_MEMBER}.{_TOKEN}: log in with Claude Code again"
        ) from error
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or not value:
        raise Refusal(ExitCode.USAGE, f"{path}: {_TOKEN} is no token: log in again")
    # Milliseconds since 1970.
    at = float(expires) / 1000 if type(expires) in (int, float) else None
    return Credential(
        kind="bearer",
        value=value,
        form="file",
        expires_at=at,
        file=data if copied else sealed_file(told),
        copied=copied,
    )


def sealed_file(told: Mapping[str, Any]) -> bytes:
    """The file that a session finds: the host's own, with placeholders for both tokens.

    When the token expires is the host's word, so that the harness does not try to refresh one that
    it could not. Members that no list names stay out: what they hold is not known.
    """
    members = {name: told[name] for name in (*_KEPT, _EXPIRES) if name in told}
    sealed = {_TOKEN: PLACEHOLDER_TOKEN, _REFRESH: PLACEHOLDER_REFRESH, **members}
    return json.dumps({_MEMBER: sealed}).encode()


def rehearsed(credential: Credential, choice: Choice, now: float) -> Credential:
    """A rehearsal's credential as a session would hold one of that kind."""
    if choice == "api-key":
        return credential
    if choice == "bearer":
        return replace(credential, kind="bearer", form="bearer")
    expires = now + REHEARSED_SECONDS
    told = {"scopes": list(SCOPES), _EXPIRES: int(expires * 1000), "subscriptionType": "max"}
    copied = choice == "copy"
    file = sealed_file(told)
    if copied:
        file = file.replace(PLACEHOLDER_TOKEN.encode(), credential.value.encode())
    return replace(
        credential, kind="bearer", form="file", expires_at=expires, file=file, copied=copied
    )


def placeholder_of(credential: Credential) -> str:
    """What the session holds in the credential's place; a copy's is the token itself."""
    if credential.copied:
        return credential.value
    return PLACEHOLDER_KEY if credential.form == "api-key" else PLACEHOLDER_TOKEN


def session_files(credential: Credential) -> dict[str, bytes]:
    """The files of a session's configuration directory at its start."""
    return {} if credential.file is None else {CLAUDE_FILE: credential.file}


def when(seconds: float) -> str:
    """A time as a reason tells it: `2025-06-01 12:00:00 UTC`."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def require_lasting(credential: Credential, what: str, *, seconds: float, now: float) -> None:
    """Refusal 12 where the credential expires before what may run for ``seconds`` is over.

    Nothing inside a session can refresh it, so it would fail in the middle and have spent.
    """
    expires = credential.expires_at
    if expires is not None and expires < now + seconds:
        gone = "expired" if expires <= now else "expires"
        raise Refusal(
            ExitCode.CONFINEMENT,
            f"{what}: not started, because its credential {gone} at {when(expires)}, before its "
            f"{seconds:g} s would be over: use Claude Code on the host, which refreshes it, or "
            "give a shorter timeout",
        )


def warning_of(credential: Credential, what: str, *, seconds: float, now: float) -> str | None:
    """A line for whoever starts ``what``, where the credential may expire before its end."""
    expires = credential.expires_at
    if expires is None or expires >= now + seconds:
        return None
    return (
        f"{what} may take {seconds:g} s, and the credential expires at {when(expires)}: sessions "
        "that could not end before are not started"
    )


def spellings(secret: str) -> tuple[bytes, ...]:
    """How a secret may stand in a file: as it is, and in base64 at each of its three offsets."""
    plain = secret.encode()
    found = [plain]
    for shift in range(3):
        coded = base64.b64encode(b"x" * shift + plain).rstrip(b"=")
        # The letters at both ends depend on what stands beside the secret.
        found.append(
            coded[2 if shift == 1 else 3 if shift == 2 else 0 :][: len(plain) * 4 // 3 - 3]
        )
    return tuple(found)


def holders(secret: str, directory: Path) -> tuple[Path, ...]:
    """The files under a directory in which a secret stands in one of its spellings."""
    wanted = spellings(secret)
    longest = max(map(len, wanted))
    return tuple(
        path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink() and _holds(path, wanted, longest)
    )


def _holds(path: Path, wanted: Iterable[bytes], longest: int) -> bool:
    before = b""
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            window = before + piece
            if any(each in window for each in wanted):
                return True
            before = window[-longest:]
    return False

"""The host's credential: which is taken, what a session gets of it, and how long it lasts."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from recorder.refusal import ExitCode, Refusal
from recorder.session.credentials import (
    CLAUDE_FILE,
    Choice,
    find_credential,
    holders,
    placeholder_of,
    rehearsed,
    require_lasting,
    session_files,
    warning_of,
)
from recorder.session.driver import control_files
from recorder.session.harness import (
    PLACEHOLDER_KEY,
    PLACEHOLDER_TOKEN,
    Form,
    environment,
    managed_settings,
    pinned_routes,
)
from recorder.session.sidecar import Credential

KEY, BEARER, TOKEN = "sk-ant-api03-real", "a-bearer-real", "sk-ant-oat01-real"
HOST = {
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_AUTH_TOKEN": BEARER,
    "CLAUDE_CODE_OAUTH_TOKEN": TOKEN,
}
AT = 1_800_000_000.0


def logged_in(directory: Path, **changes: Any) -> Path:
    members = {
        "accessToken": "sk-ant-oat01-of-the-file",
        "refreshToken": "sk-ant-ort01-of-the-file",
        "expiresAt": int(AT * 1000),
        "scopes": ["user:inference"],
        "subscriptionType": "max",
        "unheard_of": "secret too",
        **changes,
    }
    (directory / CLAUDE_FILE).write_text(json.dumps({"claudeAiOauth": members, "other": 1}))
    return directory


@pytest.mark.parametrize(
    ("names", "choice", "form", "value"),
    [
        (HOST, None, "api-key", KEY),
        (HOST, "bearer", "bearer", BEARER),
        (("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"), None, "bearer", BEARER),
        (("CLAUDE_CODE_OAUTH_TOKEN",), None, "oauth-token", TOKEN),
        (("CLAUDE_CODE_OAUTH_TOKEN",), "bearer", "oauth-token", TOKEN),
        ((), None, "file", "sk-ant-oat01-of-the-file"),
        (HOST, "claude", "file", "sk-ant-oat01-of-the-file"),
        (HOST, "copy", "file", "sk-ant-oat01-of-the-file"),
    ],
)
def test_the_one_that_is_chosen_is_taken_else_the_first_that_the_host_has(
    tmp_path: Path, names: Any, choice: Choice | None, form: Form, value: str
) -> None:
    found = find_credential(choice, {name: HOST[name] for name in names}, logged_in(tmp_path))
    assert found is not None
    assert (found.form, found.value) == (form, value)
    assert found.copied is (choice == "copy")
    assert (found.kind == "api_key") is (form == "api-key")
    assert value not in repr(found)


def test_a_host_without_one_has_none(tmp_path: Path) -> None:
    assert find_credential(None, {}, tmp_path) is None
    assert find_credential(None, dict.fromkeys(HOST, ""), tmp_path) is None


@pytest.mark.parametrize("choice", ["api-key", "bearer", "claude", "copy"])
def test_a_chosen_one_that_is_not_there_is_refused(tmp_path: Path, choice: Choice) -> None:
    with pytest.raises(Refusal) as refusal:
        find_credential(choice, {}, tmp_path)
    assert refusal.value.code == ExitCode.MISSING
    assert choice in refusal.value.reasons[0]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"claudeAiOauth": 7}', '{"claudeAiOauth": {"accessToken": 7}}',
     '{"claudeAiOauth": {"accessToken": "secret\\n"}}', '{"claudeAiOauth": {"accessToken": ""}}'],
)  # fmt: skip
def test_a_broken_file_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / CLAUDE_FILE).write_text(text)
    with pytest.raises(Refusal) as refusal:
        find_credential(None, {}, tmp_path)
    assert refusal.value.code == ExitCode.USAGE
    assert str(tmp_path / CLAUDE_FILE) in refusal.value.reasons[0]
    assert "secret" not in refusal.value.reasons[0]


def test_a_sealed_file_holds_no_member_that_could_be_one(tmp_path: Path) -> None:
    found = find_credential("claude", {}, logged_in(tmp_path))
    assert found is not None
    assert found.expires_at == AT
    (data,) = session_files(found).values()
    assert json.loads(data)["claudeAiOauth"] == {
        "accessToken": PLACEHOLDER_TOKEN,
        "refreshToken": "sk-ant-ort01-placeholder-of-the-recorder-0000000000",
        "scopes": ["user:inference"],
        "subscriptionType": "max",
        "expiresAt": int(AT * 1000),
    }
    assert placeholder_of(found) == PLACEHOLDER_TOKEN


def test_a_copy_is_the_file_itself_and_the_sidecar_lets_that_token_alone_pass(
    tmp_path: Path,
) -> None:
    found = find_credential("copy", {}, logged_in(tmp_path))
    assert found is not None
    assert session_files(found) == {CLAUDE_FILE: (tmp_path / CLAUDE_FILE).read_bytes()}
    assert placeholder_of(found) == found.value


@pytest.mark.parametrize("expires", [None, "soon", True, [1]])
def test_an_expiry_that_is_no_number_is_not_known(tmp_path: Path, expires: object) -> None:
    found = find_credential("claude", {}, logged_in(tmp_path, expiresAt=expires))
    assert found is not None
    assert found.expires_at is None
    require_lasting(found, "a session", seconds=1e9, now=AT)


@pytest.mark.parametrize("form", ["api-key", "bearer", "oauth-token", "file"])
def test_every_other_way_to_a_credential_is_pinned_shut(form: Form) -> None:
    own = {"api-key": "ANTHROPIC_API_KEY", "bearer": "ANTHROPIC_AUTH_TOKEN",
           "oauth-token": "CLAUDE_CODE_OAUTH_TOKEN"}.get(form)  # fmt: skip
    pinned, given = pinned_routes("placeholder", form), environment("placeholder", form)
    for name in HOST:
        assert pinned[name] == ("placeholder" if name == own else "")
        assert given.get(name) == ("placeholder" if name == own else None)
    assert json.loads(managed_settings("placeholder", form))["env"] == pinned


def test_what_could_not_end_before_its_credential_is_not_started() -> None:
    lasting = Credential("bearer", "x", "file", AT)
    require_lasting(lasting, "session s", seconds=600, now=AT - 600)
    with pytest.raises(Refusal) as refusal:
        require_lasting(lasting, "session s", seconds=600, now=AT - 599)
    assert refusal.value.code == ExitCode.CONFINEMENT
    assert "expires at 2027-01-15 08:00:00 UTC" in refusal.value.reasons[0]
    with pytest.raises(Refusal, match="expired at"):
        require_lasting(lasting, "session s", seconds=600, now=AT + 1)


def test_a_batch_that_may_outlast_its_credential_is_warned_of() -> None:
    lasting = Credential("bearer", "x", "file", AT)
    assert warning_of(lasting, "the batch", seconds=600, now=AT - 600) is None
    warning = warning_of(lasting, "the batch", seconds=601, now=AT - 600)
    assert warning is not None
    assert "2027-01-15 08:00:00 UTC" in warning
    assert warning_of(Credential("api_key", "x"), "the batch", seconds=1e9, now=AT) is None


@pytest.mark.parametrize("choice", ["api-key", "bearer", "claude", "copy"])
def test_a_rehearsal_is_held_as_a_session_would_hold_one(choice: Choice) -> None:
    made = rehearsed(Credential("api_key", "rehearsal-secret"), choice, AT)
    assert made.value == "rehearsal-secret"
    held = b"".join(session_files(made).values())
    assert (b"rehearsal-secret" in held) is (choice == "copy")
    assert made.copied is (choice == "copy")
    require_lasting(made, "a session", seconds=86400, now=AT)


def test_the_session_owns_its_file_alone(tmp_path: Path) -> None:
    found = find_credential("claude", {}, logged_in(tmp_path))
    assert found is not None
    packed = b"".join(
        control_files(
            argv=("x",),
            environment={},
            uid=1007,
            certificate="",
            placeholder=placeholder_of(found),
            form=found.form,
            files=session_files(found),
        )
    )
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.getmember("session/config/.credentials.json")
        assert (member.uid, member.mode) == (1007, 0o600)
    assert found.value.encode() not in packed


def test_a_secret_is_found_across_the_pieces_that_a_file_is_read_in(tmp_path: Path) -> None:
    secret = "sk-ant-oat01-0123456789"
    (tmp_path / "a").write_bytes(b"x" * ((1 << 20) - 5) + secret.encode() + b"x" * 100)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(b"nothing")
    assert holders(secret, tmp_path) == (tmp_path / "a",)


def test_the_placeholder_of_a_key_looks_like_one() -> None:
    assert placeholder_of(Credential("api_key", KEY)) == PLACEHOLDER_KEY

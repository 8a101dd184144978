"""The envelope of a statement and the keys that sign it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from recorder.evidence.signing import (
    EnvelopeError,
    key_id,
    open_envelope,
    pre_authenticated,
    public_pem,
    read_public,
    seal,
)
from recorder.evidence.signing_keys import key_directory, new_key, own_key, trust, trusted_keys
from recorder.refusal import Refusal
from tests.recording.rig import recorder

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()


def test_what_is_signed_is_the_protocols_own_example() -> None:
    # Of the DSSE protocol's page.
    assert pre_authenticated(b"hello world", "http://example.com/HelloWorld") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@given(st.binary(max_size=300))
def test_an_envelope_gives_back_what_was_sealed(payload: bytes) -> None:
    assert open_envelope(seal(payload, KEY), PUBLIC) == payload


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_no_bit_of_an_envelope_can_change(at: int, bit: int) -> None:
    data = bytearray(seal(b'{"a": 1}', KEY))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(EnvelopeError):
        open_envelope(bytes(data), PUBLIC)


def test_another_key_another_type_and_two_signatures_are_refused() -> None:
    envelope = json.loads(seal(b"{}", KEY))
    other = Ed25519PrivateKey.generate()
    with pytest.raises(EnvelopeError, match="is not signed by"):
        open_envelope(seal(b"{}", other), PUBLIC)
    for changes in (
        {"payloadType": "application/json"},
        {"signatures": envelope["signatures"] * 2},
        {"signatures": []},
        {"more": 1},
    ):
        with pytest.raises(EnvelopeError):
            open_envelope(json.dumps({**envelope, **changes}).encode(), PUBLIC)


def test_openssl_reads_the_key_and_names_it_alike(tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_bytes(public_pem(PUBLIC))
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", path, "-outform", "DER"],
        capture_output=True,
        check=True,
    ).stdout
    found = subprocess.run(["sha256sum"], input=der, capture_output=True, check=True).stdout
    assert key_id(PUBLIC) == f"sha256:{found.split()[0].decode()}"


def test_what_is_no_ed25519_key_is_refused() -> None:
    with pytest.raises(EnvelopeError, match="no public key"):
        read_public(b"-----BEGIN PUBLIC KEY-----\n")
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    with pytest.raises(EnvelopeError, match="no Ed25519 key"):
        read_public(public_pem(curve))  # type: ignore[arg-type]


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    made = new_key(directory, "mine")
    assert (directory / "mine.key").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    own = own_key(directory, "mine")
    assert own is not None
    assert key_id(own.public_key()) == made.id
    with pytest.raises(Refusal, match="is there already"):
        new_key(directory, "mine")
    assert own_key(directory, "another") is None
    (directory / "mine.key").chmod(0o640)
    with pytest.raises(Refusal, match="others may read"):
        own_key(directory, "mine")


def test_whom_to_trust_is_kept_by_name(tmp_path: Path) -> None:
    file = tmp_path / "their.pub"
    file.write_bytes(public_pem(PUBLIC))
    trust(tmp_path / "keys", "them", file)
    assert [(each.name, each.id) for each in trusted_keys(tmp_path / "keys")] == [
        ("them", key_id(PUBLIC))
    ]
    with pytest.raises(Refusal, match="is there already"):
        trust(tmp_path / "keys", "them", file)
    with pytest.raises(Refusal, match="a key's name"):
        trust(tmp_path / "keys", "../them", file)


def test_keys_lie_where_the_environment_says() -> None:
    assert key_directory({"RECORDER_KEYS": "/k"}) == Path("/k")
    assert key_directory({"XDG_CONFIG_HOME": "/c"}) == Path("/c/recorder/keys")
    assert key_directory({}) == Path.home() / ".config/recorder/keys"


def test_the_verbs_make_show_and_trust_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDER_KEYS", str(tmp_path / "keys"))
    made = recorder("key", "new", "--name", "mine")
    assert made.code == 0
    shown = recorder("key", "show", "mine").out
    name = key_id(read_public(shown.encode()))
    assert name in made.out
    assert name in recorder("key", "show").out
    file = tmp_path / "their.pub"
    file.write_bytes(public_pem(PUBLIC))
    assert recorder("key", "trust", "them", file).out == f"{key_id(PUBLIC)}\n"
    assert recorder("key", "show", "nobody").code == 2
    assert recorder("sign", tmp_path, "--key", "nobody").code == 3
    assert b"PRIVATE" in (tmp_path / "keys" / "mine.key").read_bytes()
    assert base64.b64decode(shown.splitlines()[1])
    assert os.listdir(tmp_path / "keys" / "trusted") == ["them.pub"]

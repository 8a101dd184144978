"""A signed batch for every test of this room, recorded and signed once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recorder.evidence.signing import key_id, public_pem, seal
from recorder.evidence.verification import SIGNER, STATEMENT, statement_of
from tests.report.recorded import recorded_batch

SIGNED_AT = "2025-06-01T12:00:00+00:00"


def sign(directory: Path, key: Ed25519PrivateKey) -> None:
    """Sign whatever is there, right or wrong: as whoever holds a key can."""
    for stale in (STATEMENT, SIGNER):
        (directory / stale).unlink(missing_ok=True)
    payload, _ = statement_of(directory, signed_at=SIGNED_AT, key=key_id(key.public_key()))
    (directory / SIGNER).write_bytes(public_pem(key.public_key()))
    (directory / STATEMENT).write_bytes(seal(payload, key))


@pytest.fixture(scope="session")
def signing_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="session")
def signed(tmp_path_factory: pytest.TempPathFactory, signing_key: Ed25519PrivateKey) -> Path:
    """Nobody may change it: take a ``copy``."""
    directory = tmp_path_factory.mktemp("signed") / "batch"
    shutil.copytree(recorded_batch(), directory)
    sign(directory, signing_key)
    return directory


@pytest.fixture
def copy(signed: Path, tmp_path: Path) -> Callable[[], Path]:
    """A copy of the signed batch that a test may change; each call gives another."""
    made: list[Path] = []

    def copied() -> Path:
        directory = tmp_path / f"copy-{len(made)}"
        shutil.copytree(signed, directory)
        made.append(directory)
        return directory

    return copied

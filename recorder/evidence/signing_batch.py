"""Sign a batch's directory: verify it, state what it holds, seal the statement beside it."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recorder.durable import write_durable
from recorder.evidence.signing import key_id, public_pem, seal
from recorder.evidence.verification import SIGNER, STATEMENT, statement_of, verify_batch
from recorder.refusal import ExitCode, Refusal


def sign_batch(directory: Path, key: Ed25519PrivateKey) -> str:
    """Sign every file as it stands; what was done, as a line. An earlier statement goes first.

    Refusal 19 where the batch does not verify: then it is unsigned.
    """
    for stale in (STATEMENT, SIGNER):
        (directory / stale).unlink(missing_ok=True)
    found = verify_batch(directory)
    if found.faults:
        raise Refusal(ExitCode.CORRUPT, *(f"{directory}/{fault}" for fault in found.faults))
    own = key_id(key.public_key())
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    payload, faults = statement_of(directory, signed_at=at, key=own)
    if faults:
        raise Refusal(ExitCode.CORRUPT, *(f"{directory}/{fault}" for fault in faults))
    write_durable(directory / SIGNER, public_pem(key.public_key()))
    write_durable(directory / STATEMENT, seal(payload, key))
    return f"{directory / STATEMENT}: {found.files} files, signed by {own}"

"""A statement in its envelope (DSSE 1.0), signed with Ed25519. Pure but for the signature's maths.

What is signed is not the envelope but ``pre_authenticated``: the payload's type and the payload,
each with its length, so that neither can be read as part of the other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from recorder.plain_file import decode

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``payload`` and ``sig`` are base64."""

    payload: str
    payload_type: str
    signatures: tuple[Signature, ...]


class EnvelopeError(ValueError):
    """Bytes that are no envelope of ours, or one that the key did not sign. One line says why."""


def pre_authenticated(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The bytes that are signed: ``DSSEv1 SP LEN(type) SP type SP LEN(payload) SP payload``."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def public_pem(key: Ed25519PublicKey) -> bytes:
    """The public key as ``openssl pkey -pubout`` writes it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: Ed25519PublicKey) -> str:
    """The digest of the key's DER form: ``openssl pkey -pubin -outform DER | sha256sum``."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def read_public(pem: bytes) -> Ed25519PublicKey:
    """A public key of PEM text. Raises ``EnvelopeError`` for anything else."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise EnvelopeError(f"is no public key in PEM form: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise EnvelopeError("is no Ed25519 key")
    return key


def seal(payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """The payload in an envelope that the key signed, as the file's bytes."""
    signature = Signature(key_id(key.public_key()), _base64(key.sign(pre_authenticated(payload))))
    return _encoded(Envelope(_base64(payload), PAYLOAD_TYPE, (signature,)))


def open_envelope(data: bytes, key: Ed25519PublicKey) -> bytes:
    """The payload of an envelope that the key signed.

    Raises ``EnvelopeError``. An envelope has one form here, so that no byte of it can change
    unseen.
    """
    try:
        envelope = decode(data, Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        signatures = [base64.b64decode(each.sig, validate=True) for each in envelope.signatures]
    except (msgspec.MsgspecError, binascii.Error) as error:
        raise EnvelopeError(f"is no envelope of a statement: {error}") from error
    if envelope.payload_type != PAYLOAD_TYPE:
        raise EnvelopeError(f"its payload is {envelope.payload_type} and not {PAYLOAD_TYPE}")
    own = key_id(key)
    if [each.keyid for each in envelope.signatures] != [own]:
        raise EnvelopeError(f"it is not signed by {own} alone")
    try:
        key.verify(signatures[0], pre_authenticated(payload))
    except InvalidSignature as error:
        raise EnvelopeError(f"its signature is not one of {own} over its payload") from error
    # Base64 has bits at its end that decode to nothing.
    again = Envelope(_base64(payload), PAYLOAD_TYPE, (Signature(own, _base64(signatures[0])),))
    if _encoded(again) != data:
        raise EnvelopeError("it is not in the one form that an envelope has here")
    return payload


def _encoded(envelope: Envelope) -> bytes:
    return msgspec.json.format(msgspec.json.encode(envelope), indent=2) + b"\n"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

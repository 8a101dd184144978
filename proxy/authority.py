"""A sidecar's own certificate authority: made at its start, its key forgotten before it is ready.

The key signs one certificate, for the hosts of the policy, and is dropped. Nothing is written to
disk. Elliptic curves (P-256): made in under 1 ms, where an RSA key took 30 to 400 ms.
"""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from mitmproxy.certs import Cert, CertStore, CertStoreEntry

# A session ends long before; a clock that is a day behind still believes it.
_VALID_BEFORE = datetime.timedelta(days=2)
_VALID_AFTER = datetime.timedelta(days=30)


def make_authority(hosts: frozenset[str]) -> tuple[CertStore, str]:
    """A certificate store that knows `hosts` alone, and the PEM to trust for them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "recorder sidecar")])
    authority = (
        _certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        _certificate(x509.Name([]), name, leaf_key.public_key())
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host) for host in sorted(hosts)]),
            critical=True,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    # The store's default key would sign certificates for other names. It gets the leaf's, which no
    # one trusts to sign; the authority's own key ends with this function.
    store = CertStore(leaf_key, Cert(authority), None, b"", None)
    store.add_cert(CertStoreEntry(Cert(leaf), leaf_key, None, []), *hosts)
    return store, authority.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID_BEFORE)
        .not_valid_after(now + _VALID_AFTER)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

"""Credentials: a certificate authority, a SuperLink's certificate, and the sites' keys.

Existing files are kept: to replace one, remove it first.
"""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from baselines.errors import UserError

LOCAL = ("localhost", "127.0.0.1")  # Flower's own subprocesses connect to the SuperLink there
CA_DAYS, SERVER_DAYS = 3650, 825
KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def authority(folder: Path) -> list[Path]:
    """Make an authority, ``ca.key`` and ``ca.pem``, if there is none; return the new files."""
    key_file, file = folder / "ca.key", folder / "ca.pem"
    if file.exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Federation CA")])
    built = _certificate(name, name, key.public_key(), key.public_key(), CA_DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    _write_key(key_file, key, serialization.PrivateFormat.PKCS8)
    _write(file, built.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM), 0o644)
    return [key_file, file]


def server_certificate(authority: Path, folder: Path, host: str) -> list[Path]:
    """Make ``server.key`` and ``server.pem`` for a host and the loopback, if there are none.

    Raises
    ------
    UserError : if the existing certificate is for another host, or has expired
    """
    key_file, file = folder / "server.key", folder / "server.pem"
    names = list(dict.fromkeys((host, *LOCAL)))
    if file.exists():
        _check(file, host)
        return []
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    ca_key = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    built = _certificate(subject, ca.subject, key.public_key(), ca_key.public_key(), SERVER_DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_usage("digital_signature"), critical=True)
    purposes = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    built = built.add_extension(purposes, critical=False)
    built = built.add_extension(x509.SubjectAlternativeName(list(map(_general, names))), critical=False)
    _write_key(key_file, key, serialization.PrivateFormat.PKCS8)
    _write(file, built.sign(ca_key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM), 0o644)
    return [key_file, file]


def key_pair(private: Path) -> list[Path]:
    """Make an EC P-384 key pair in OpenSSH's format if there is none: ``private`` and its ``.pub``.

    A ``.pub`` alone counts as a pair whose private key has been handed over.
    """
    public = private.with_name(private.name + ".pub")
    if private.exists() or public.exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    _write_key(private, key, serialization.PrivateFormat.OpenSSH)
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(public, key.public_key().public_bytes(*form) + b"\n", 0o644)
    return [private, public]


def check_public_key(file: Path) -> None:
    """Refuse a file that is not a public key on an elliptic curve, as Flower needs.

    Raises
    ------
    UserError : for any other file, such as a private key
    """
    try:
        key = serialization.load_ssh_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{file} is not a public key ({error}): expected ssh-keygen's .pub") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{file} is a key of another kind: make one with ssh-keygen -t ecdsa -b 384")


def _check(file: Path, host: str) -> None:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if _general(host) not in list(names):
        raise UserError(f"{file} is not for {host}: remove it, and provision again")
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise UserError(f"{file} has expired: remove it, and provision again")


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC) - timedelta(minutes=5)  # clocks may differ
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in usages for name in KEY_USAGES})


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    _write(file, text, 0o600)


def _write(file: Path, text: bytes, mode: int) -> None:
    """Write a file with its final permissions from the start."""
    file.parent.mkdir(parents=True, exist_ok=True)
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.fchmod(opened, mode)
    with open(opened, "wb") as written:
        written.write(text)

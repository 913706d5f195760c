"""An installation's own authority, which signs and revokes certificates of servers and devices.

Text enters and text leaves; no file is touched here. Keys are P-256, which every TLS library of the
last ten years supports, those of small devices too. A device makes its key itself and sends a
signing request (PKCS #10), so no private key of a device ever comes here.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgewake.protocol.certificates.book import Revoked

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 825
"""Days for which a certificate is valid. Phones reject certificates of private authorities that
are valid for longer."""
EARLY_DAYS: Final = 30
"""Days by which a certificate is backdated, so that a device whose clock is behind accepts it."""
REQUEST_CHARS_MAX: Final = 8192
"""The most characters of a signing request: one with an RSA key of 8192 bits has 3,000."""
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
"""Longer keys cost the broker seconds at each connection."""


class BadRequest(ValueError):
    """A device sent something that cannot be signed as a signing request."""


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority: its certificate, and the key that signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """Returns the certificate in PEM, for those who are to trust it."""
        return _pem(self.certificate)

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of the certificate, 64 hexadecimal digits."""
        return fingerprint(self.certificate)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was issued to a device."""

    pem: str
    serial: str
    """Hexadecimal."""
    until_ms: int


def new_key() -> str:
    """Makes a private key, PEM without a passphrase."""
    return (
        ec.generate_private_key(ec.SECP256R1())
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode("ascii")
    )


def make(key_pem: str, *, now_ms: int) -> str:
    """Makes the certificate of a new authority with this key, PEM. Raises ValueError."""
    key = _key(key_pem)
    # Two installations get different names.
    tag = hashes.Hash(hashes.SHA256())
    tag.update(key_pem.encode())
    name = _name(f"Edgewake {tag.finalize().hex()[:12]}")
    now = _time(now_ms)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=EARLY_DAYS))
        .not_valid_after(now + datetime.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_others=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(built)


def read(certificate_pem: str, key_pem: str) -> Authority:
    """Reads an authority.

    Raises ValueError where either is invalid, or the key is of another one.
    """
    certificate, key = _certificate(certificate_pem), _key(key_pem)
    if certificate.public_key() != key.public_key():
        raise ValueError("the authority's certificate and its key do not belong together")
    return Authority(certificate, key)


def server(authority: Authority, key_pem: str, addresses: Iterable[str], *, now_ms: int) -> str:
    """Issues a certificate for servers with these addresses, PEM. Raises ValueError."""
    names = [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
    built = _leaf(authority, "Edgewake", _key(key_pem).public_key(), now_ms=now_ms)
    built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
    built = built.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    return _pem(built.sign(authority.key, hashes.SHA256()))


def is_good_server(
    authority: Authority, pem: str, key_pem: str, address: str, *, until_ms: int
) -> bool:
    """Returns whether a certificate of the authority fits the key and address until `until_ms`."""
    try:
        found, key = _certificate(pem), _key(key_pem)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return (
        found.public_key() == key.public_key()
        and ipaddress.ip_address(address) in names.get_values_for_type(x509.IPAddress)
        and found.not_valid_after_utc > _time(until_ms)
    )


def checked_request(pem: str) -> x509.CertificateSigningRequest:
    """Parses a signing request. Raises BadRequest.

    Its signature must prove that its sender has the key.
    """
    if len(pem) > REQUEST_CHARS_MAX:
        raise BadRequest(f"signing request: expected at most {REQUEST_CHARS_MAX} characters")
    try:
        request = x509.load_pem_x509_csr(pem.encode("ascii"))
        is_signed = request.is_signature_valid
        key = request.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadRequest(
            "signing request: expected PEM that begins with -----BEGIN CERTIFICATE REQUEST-----"
        ) from error
    if not is_signed:
        raise BadRequest("signing request: the signature was not made with its key")
    match key:
        case ec.EllipticCurvePublicKey(curve=ec.SECP256R1() | ec.SECP384R1()):
            return request
        case ed25519.Ed25519PublicKey():
            return request
        case rsa.RSAPublicKey() if RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
            return request
    raise BadRequest(
        f"signing request: expected a key P-256, P-384, Ed25519 or RSA of {RSA_BITS_MIN} to "
        f"{RSA_BITS_MAX} bits"
    )


def device(
    authority: Authority, request: x509.CertificateSigningRequest, name: str, *, now_ms: int
) -> Issued:
    """Issues a certificate whose common name is the device, whatever the request says."""
    built = _leaf(authority, name, request.public_key(), now_ms=now_ms).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    made = built.sign(authority.key, hashes.SHA256())
    return Issued(
        _pem(made), f"{made.serial_number:x}", round(made.not_valid_after_utc.timestamp() * 1000)
    )


def revocations(authority: Authority, revoked: Iterable[Revoked], number: int) -> str:
    """Makes the revocation list, PEM. `number` grows with each list.

    The broker keeps lists that it read before and uses the one with the latest time, so the time is
    derived from the number. The list is valid as long as the authority: with an expired list the
    broker would refuse everybody.
    """
    begin = authority.certificate.not_valid_before_utc
    built = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(begin + datetime.timedelta(seconds=number))
        .next_update(authority.certificate.not_valid_after_utc)
        .add_extension(_identifier(authority), critical=False)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for one in revoked:
        built = built.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(int(one.serial, 16))
            .revocation_date(_time(one.at_ms))
            .build()
        )
    return _pem(built.sign(authority.key, hashes.SHA256()))


def number_of(revocations_pem: str) -> int:
    """Returns the number of a list of `revocations`. Raises ValueError."""
    try:
        found = x509.load_pem_x509_crl(revocations_pem.encode("ascii"))
        return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound as error:
        raise ValueError("expected a list of revoked certificates with a number") from error


def request(key_pem: str, name: str) -> str:
    """Makes a signing request for this key, PEM. Raises ValueError."""
    built = x509.CertificateSigningRequestBuilder().subject_name(_name(name))
    return _pem(built.sign(_key(key_pem), hashes.SHA256()))


def fingerprint(certificate: x509.Certificate) -> str:
    """Returns the SHA-256 of a certificate, 64 hexadecimal digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def fingerprint_of(pem: str) -> str:
    """Returns the fingerprint of a certificate in PEM. Raises ValueError."""
    return fingerprint(_certificate(pem))


def _leaf(authority: Authority, name: str, key: object, *, now_ms: int) -> x509.CertificateBuilder:
    now = _time(now_ms)
    begin = max(
        now - datetime.timedelta(days=EARLY_DAYS), authority.certificate.not_valid_before_utc
    )
    end = min(
        now + datetime.timedelta(days=LEAF_DAYS - EARLY_DAYS),
        authority.certificate.not_valid_after_utc,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(authority.certificate.subject)
        .public_key(key)  # type: ignore[arg-type]  # one of those that were looked at
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_others=False), critical=True)
        .add_extension(_identifier(authority), critical=False)
    )


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier(authority: Authority) -> x509.AuthorityKeyIdentifier:
    found = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key(pem: str) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(pem.encode("ascii"), None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("expected a P-256 key, PEM")
    return found


def _certificate(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode("ascii"))


def _pem(
    made: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList,
) -> str:
    return made.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _time(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)

"""An installation's authority, and the book of what it gave and took back."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from edgewake.protocol.certificates import authority as authorities
from edgewake.protocol.certificates import book as books
from edgewake.protocol.certificates.authority import Authority, BadRequest
from edgewake.protocol.certificates.book import Book

NOW = 1_800_000_000_000
DAY = 86_400_000


def made(now_ms: int = NOW) -> tuple[Authority, str]:
    key = authorities.new_key()
    return authorities.read(authorities.make(key, now_ms=now_ms), key), key


def requested(key: object, name: str = "x") -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    built = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return (
        built.sign(key, algorithm)  # type: ignore[arg-type]  # what a stranger may send
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )


@pytest.mark.parametrize(
    ("new_key", "is_good"),
    [
        (lambda: ec.generate_private_key(ec.SECP256R1()), True),
        (lambda: ec.generate_private_key(ec.SECP384R1()), True),
        (ed25519.Ed25519PrivateKey.generate, True),
        (lambda: rsa.generate_private_key(65537, 2048), True),
        (lambda: rsa.generate_private_key(65537, 1024), False),
        (lambda: ec.generate_private_key(ec.SECP192R1()), False),
        (lambda: dsa.generate_private_key(2048), False),
    ],
    ids=["P-256", "P-384", "Ed25519", "RSA", "short RSA", "P-192", "DSA"],
)
def test_keys_that_are_worth_it_are_signed(new_key: Callable[[], object], is_good: bool) -> None:
    text = requested(new_key())
    if is_good:
        authorities.checked_request(text)
    else:
        with pytest.raises(BadRequest, match="expected a key"):
            authorities.checked_request(text)


@pytest.mark.parametrize("text", ["", "x", "ä", "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n"])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="expected PEM"):
        authorities.checked_request(text)
    with pytest.raises(BadRequest, match="at most"):
        authorities.checked_request("-" * (authorities.REQUEST_CHARS_MAX + 1))


def test_nobody_is_given_a_certificate_for_a_key_that_he_does_not_have() -> None:
    mine = x509.load_pem_x509_csr(requested(ec.generate_private_key(ec.SECP256R1())).encode())
    der = bytearray(mine.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    with pytest.raises(BadRequest):
        authorities.checked_request(
            ssl.DER_cert_to_PEM_cert(bytes(der)).replace("CERTIFICATE", "CERTIFICATE REQUEST")
        )


def test_a_devices_certificate_says_its_name_and_no_more() -> None:
    authority, _ = made()
    request = authorities.checked_request(authorities.request(authorities.new_key(), "somebody"))
    issued = authorities.device(authority, request, "boiler", now_ms=NOW)
    found = x509.load_pem_x509_certificate(issued.pem.encode())
    found.verify_directly_issued_by(authority.certificate)
    assert found.subject.rfc4514_string() == "CN=boiler"
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    assert issued.serial == f"{found.serial_number:x}"
    assert NOW < issued.until_ms <= NOW + authorities.LEAF_DAYS * DAY
    life = found.not_valid_after_utc - found.not_valid_before_utc
    assert life <= datetime.timedelta(days=825)


def test_a_server_is_good_for_its_address_its_key_and_its_time() -> None:
    authority, _ = made()
    other, _ = made()
    key = authorities.new_key()
    pem = authorities.server(authority, key, ("192.0.2.7", "2001:db8::7"), now_ms=NOW)
    for who, at, with_key, until, is_good in (
        (authority, "192.0.2.7", key, NOW, True),
        (authority, "2001:db8::7", key, NOW, True),
        (authority, "192.0.2.8", key, NOW, False),
        (other, "192.0.2.7", key, NOW, False),
        (authority, "192.0.2.7", authorities.new_key(), NOW, False),
        (authority, "192.0.2.7", key, NOW + 900 * DAY, False),
    ):
        assert authorities.is_good_server(who, pem, with_key, at, until_ms=until) == is_good
    assert not authorities.is_good_server(authority, "x", key, "192.0.2.7", until_ms=NOW)


def test_a_key_of_another_authority_is_noticed() -> None:
    authority, _ = made()
    with pytest.raises(ValueError, match="do not belong together"):
        authorities.read(authority.pem, authorities.new_key())


def test_each_list_of_what_was_taken_back_is_newer_than_the_last_and_of_the_past() -> None:
    """The broker keeps all that it read; it believes the newest, by seconds."""
    authority, _ = made()
    book, times = Book(), []
    for number in range(1, 4):  # within one millisecond
        book = book.given("a", f"{number:x}", NOW + DAY, now_ms=NOW).taken("a", now_ms=NOW)
        text = authorities.revocations(authority, book.revoked, book.number)
        assert authorities.number_of(text) == number
        found = x509.load_pem_x509_crl(text.encode())
        assert found.is_signature_valid(authority.certificate.public_key())  # type: ignore[arg-type]
        assert {one.serial_number for one in found} == set(range(1, number + 1))
        times.append(found.last_update_utc)
    assert times == sorted(set(times))
    assert times[-1].timestamp() * 1000 < NOW
    # As many as there may be are still of the past.
    most = authorities.revocations(authority, (), authorities.EARLY_DAYS * 86_400 - 1)
    assert x509.load_pem_x509_crl(most.encode()).last_update_utc.timestamp() * 1000 < NOW
    assert books.REVOKED_MAX < authorities.EARLY_DAYS * 86_400

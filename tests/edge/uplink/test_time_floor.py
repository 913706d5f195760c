"""TLS while the machine's clock is not set."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from edgewake.edge.uplink.time_floor import TimeFloor
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import CLOCK_FLOOR_MS, SystemClock
from tests.edge.mtls import broker_with_mtls, certificates
from tests.edge.peer import Peer
from tests.edge.running import ns, running
from tests.services import PATIENCE_S

OLD = {"notBefore": "Jan  1 00:00:00 2019 GMT", "notAfter": "Jan  1 00:00:00 2020 GMT"}
COMING = {"notBefore": "Jan  1 00:00:00 2040 GMT", "notAfter": "Jan  1 00:00:00 2041 GMT"}
NOW_MS = 1_790_000_000_000


class WrongClock(SystemClock):
    """Not set, until it is."""

    is_set = False

    def now_ms(self) -> int:
        return super().now_ms() if self.is_set else 5_000


def opened(
    certificate: dict[str, str], before_ms: int, after_ms: int
) -> tuple[TimeFloor, str | None]:
    floor = TimeFloor()
    floor.prepare(ssl.create_default_context(), before_ms)
    return floor, floor.opened(certificate, after_ms)


def test_with_a_clock_that_is_set_openssl_checks_the_dates() -> None:
    context, floor = ssl.create_default_context(), TimeFloor()
    flags = context.verify_flags
    floor.prepare(context, NOW_MS)
    assert context.verify_flags == flags
    assert floor.opened(OLD, NOW_MS) is None


def test_a_certificate_that_expired_before_this_build_is_refused_whatever_the_clock_says() -> None:
    _, why = opened(OLD, 5_000, 5_000)
    assert why is not None
    assert "ended on" in why


def test_a_clock_that_is_set_while_the_connection_is_opened_checks_at_once() -> None:
    _, why = opened(COMING, 5_000, NOW_MS)
    assert why is not None
    assert "begins on" in why


def test_dates_are_checked_once_when_the_clock_is_set() -> None:
    floor, why = opened(COMING, 5_000, 5_000)
    assert why is None
    assert floor.look(CLOCK_FLOOR_MS - 1) is None
    assert "begins on" in (floor.look(NOW_MS) or "")
    assert floor.look(NOW_MS) is None


def begin_tomorrow(folder: Path) -> None:
    """The broker's certificate signed once more, valid from tomorrow on."""
    old = x509.load_pem_x509_certificate((folder / "broker.pem").read_bytes())
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    begins = datetime.now(UTC) + timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(ca.subject)
        .public_key(old.public_key())
    )
    builder = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=1))
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    (folder / "broker.pem").write_bytes(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )


async def test_a_device_without_the_time_connects_and_leaves_when_the_dates_prove_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    certificates(folder)
    begin_tomorrow(folder)
    clock = WrongClock()
    with broker_with_mtls(folder) as (port, tls_port):
        files = {
            "ca_file": folder / "ca.pem",
            "cert_file": folder / "device.pem",
            "key_file": folder / "device.key",
        }
        mqtt = BrokerConfig(host="localhost", port=tls_port, **files)
        async with (
            Peer(port) as peer,
            running(tmp_path / "log", tls_port, "bench", mqtt=mqtt) as one,
        ):
            one.uplink._clock = clock
            await one.put(range(3))
            await peer.until(lambda: ns(peer, "bench") == [0, 1, 2])
            clock.is_set = True
            async with asyncio.timeout(PATIENCE_S):
                while (
                    "certificate begins on" not in caplog.text or "not yet valid" not in caplog.text
                ):
                    await asyncio.sleep(0.02)
            await one.put(range(3, 6))
    assert ns(peer, "bench") == [0, 1, 2], "with the time known the door is shut"

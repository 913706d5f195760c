"""The agent's connection over mutual TLS, against a real Mosquitto."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from edgewake.protocol.broker import BrokerConfig
from tests.edge.mtls import broker_with_mtls, certificates
from tests.edge.peer import Peer
from tests.edge.running import ns, running
from tests.services import PATIENCE_S


async def test_a_renewed_certificate_is_used_at_the_next_connection_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts with a certificate of another authority; then the right one is put in its place."""
    right, wrong, used = tmp_path / "right", tmp_path / "wrong", tmp_path / "used"
    for folder in (right, wrong):
        folder.mkdir()
        certificates(folder)
    shutil.copytree(wrong, used)
    shutil.copy(right / "ca.pem", used / "ca.pem")
    files = {
        "ca_file": used / "ca.pem",
        "cert_file": used / "device.pem",
        "key_file": used / "device.key",
    }
    with broker_with_mtls(right) as (port, tls_port):
        mqtt = BrokerConfig(host="localhost", port=tls_port, **files)
        async with (
            Peer(port) as peer,
            running(tmp_path / "log", tls_port, "bench", mqtt=mqtt) as one,
        ):
            await one.put(range(3))
            async with asyncio.timeout(PATIENCE_S):
                while caplog.text.count("offline:") < 2:
                    await asyncio.sleep(0.02)
            assert not peer.taken, "the wrong certificate opened the door"
            for name in ("device.pem", "device.key"):
                shutil.copy(right / name, used / name)
            await peer.until(lambda: ns(peer, "bench") == [0, 1, 2])

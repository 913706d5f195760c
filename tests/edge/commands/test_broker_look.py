"""What the doctor says of a broker: one that works, one that is none, TLS where there is none, a
certificate that is not wanted.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from edgewake.edge.commands import broker_look
from edgewake.edge.commands.broker_look import look
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.errors import LocalError
from tests.edge.mtls import broker_with_mtls, certificates
from tests.edge.peer import Peer
from tests.services import Mosquitto


@contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[BrokerConfig]:
    """A server that does this with its first connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with suppress(OSError), listening.accept()[0] as one:
                serve(one)

        thread = threading.Thread(target=run)
        thread.start()
        yield BrokerConfig(port=listening.getsockname()[1])
        thread.join()


def said(broker: BrokerConfig) -> str:
    with pytest.raises(LocalError) as caught:
        look(broker)
    return str(caught.value)


def test_a_server_of_the_web_is_no_broker() -> None:
    def http(one: socket.socket) -> None:
        one.recv(100)
        one.sendall(b"HTTP/1.0 400 Bad request\r\n\r\n")

    with answering(http) as broker:
        assert "the answer is not MQTT (b'HTTP/1.0 400" in said(broker)


def test_a_port_that_answers_by_an_alert_of_tls_wants_tls() -> None:
    def alert(one: socket.socket) -> None:
        one.recv(100)
        one.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

    with answering(alert) as broker:
        assert "speaks TLS: set ca_file" in said(broker)


def test_one_that_closes_says_nothing_against_it_and_one_that_is_silent_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering(lambda one: one.close()) as broker:
        assert look(broker) == f"127.0.0.1:{broker.port} takes connections, without TLS"
    monkeypatch.setattr(broker_look, "BROKER_S", 0.2)
    gone = threading.Event()
    with answering(lambda _one: bool(gone.wait(60)) and None) as broker:
        assert "says nothing" in said(broker)
        gone.set()


def test_a_broker_that_works_is_told_by_its_answer_and_a_running_agent_keeps_its_connection(
    mosquitto: Mosquitto,
) -> None:
    assert look(BrokerConfig(port=mosquitto.port)).endswith("without TLS, and speaks MQTT")


async def test_over_tls_the_wrong_port_and_the_wrong_certificate_are_named(tmp_path: Path) -> None:
    certificates(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    certificates(other)
    ours = {"host": "localhost", "ca_file": tmp_path / "ca.pem"}
    mine = ours | {"cert_file": tmp_path / "device.pem", "key_file": tmp_path / "device.key"}
    with broker_with_mtls(tmp_path) as (port, tls_port):
        async with Peer(port) as _:
            assert ", TLSv1.3" in look(BrokerConfig(port=tls_port, **mine))  # type: ignore[arg-type]
            assert "is this its port for TLS?" in said(BrokerConfig(port=port, **mine))  # type: ignore[arg-type]
            assert "cert_file and key_file those that it asks for" in said(
                BrokerConfig(port=tls_port, **ours)
            )  # type: ignore[arg-type]
            theirs = mine | {"cert_file": other / "device.pem", "key_file": other / "device.key"}
            assert "the broker refused us" in said(BrokerConfig(port=tls_port, **theirs))  # type: ignore[arg-type]
            assert "is ca_file its authority" in said(
                BrokerConfig(port=tls_port, **(mine | {"ca_file": other / "ca.pem"}))
            )  # type: ignore[arg-type]

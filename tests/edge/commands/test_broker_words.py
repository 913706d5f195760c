"""What `doctor` makes of whatever answers at a broker's address: words that say what to look at."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgewake.edge.commands import broker_look
from edgewake.edge.commands.broker_look import REFUSED, _answer, _hint, look
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.errors import ConfigError, LocalError
from tests.services import PATIENCE_S, free_ports


@contextmanager
def connected(*said: bytes, closes: bool = True) -> Iterator[socket.socket]:
    """A channel whose other end has said this."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE_S)
        for data in said:
            theirs.sendall(data)
        if closes:
            theirs.shutdown(socket.SHUT_WR)
        yield ours


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"\x20\x03\x00\x84\x00", ", and speaks MQTT"),
        (b"\x20", ", and speaks MQTT"),
        (b"", ""),
    ],
    ids=["it refuses our version", "the first byte alone", "it closes at once, as a broker may"],
)
def test_what_may_be_a_broker_is_good(said: bytes, words: str) -> None:
    with connected(said) as channel:
        assert _answer("b:1", channel) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            b"\x15\x03\x01\x00\x02\x02\x46",
            "b:1: speaks TLS: set ca_file, or use its port without TLS",
        ),
        (b"\x16\x03\x01", "b:1: speaks TLS"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "b:1: the answer is not MQTT (b'HTTP/1.1 400 Bad Request",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not MQTT (b'SSH-2.0-OpenSSH_9.2"),
        (b"\x1b]0;evil\x07", "the answer is not MQTT (b'\\x1b]0;evil\\x07')"),
        (b"\x30\x00", "the answer is not MQTT"),
        (b"x" * 5000, "the answer is not MQTT (b'" + "x" * 24 + "'): is this the broker's port?"),
    ],
    ids=[
        "an alert of TLS",
        "a handshake of TLS",
        "a web server",
        "a shell",
        "what would move a terminal",
        "a publish",
        "a flood",
    ],
)
def test_what_is_no_broker_is_said_and_none_of_its_bytes_reach_the_terminal(
    said: bytes, words: str
) -> None:
    with connected(said) as channel, pytest.raises(LocalError) as caught:
        _answer("b:1", channel)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_one_that_says_nothing_is_said_to() -> None:
    with connected(closes=False) as channel:
        channel.settimeout(0.01)
        with pytest.raises(
            LocalError, match="takes a connection and says nothing: is a broker behind it"
        ):
            _answer("b:1", channel)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConnectionRefusedError(), "is the address right, and does the broker run?"),
        (
            socket.gaierror(-2, "Name or service not known"),
            "is the address right, and does the broker run?",
        ),
        (TimeoutError(), "is the address right, and does the broker run?"),
        (ssl.SSLEOFError("EOF"), "is this its port for TLS?"),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            "is this its port for TLS?",
        ),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca"), REFUSED),
        (ssl.SSLError(1, "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] alert bad certificate"), REFUSED),
        (
            ssl.SSLCertVerificationError(1, "certificate has expired"),
            "is ca_file its authority's, and the clock right?",
        ),
        (
            ssl.SSLCertVerificationError(1, "self-signed certificate"),
            "is ca_file its authority's, and the clock right?",
        ),
    ],
    ids=lambda found: type(found).__name__ if isinstance(found, Exception) else "",
)
def test_each_error_leads_to_what_to_look_at(error: OSError, hint: str) -> None:
    assert _hint(error) == hint


def test_an_address_where_nobody_is_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    with pytest.raises(
        LocalError,
        match=f"127.0.0.1:{port}: .*refused: is the address right, and does the broker run",
    ):
        look(BrokerConfig(port=port))
    monkeypatch.setattr(
        socket,
        "create_connection",
        lambda *_, **__: (_ for _ in ()).throw(socket.gaierror(-2, "Name or service not known")),
    )
    with pytest.raises(
        LocalError, match=r"nowhere.example:1883: .*Name or service not known: is the address right"
    ):
        look(BrokerConfig(host="nowhere.example"))


@pytest.mark.parametrize("key", ["password_file", "ca_file"])
def test_a_file_that_cannot_be_used_is_named_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *found, **__: asked.append(found))
    with pytest.raises(ConfigError, match=f"mqtt.{key} = {tmp_path}/none"):
        look(BrokerConfig(**{key: tmp_path / "none"}))
    assert asked == []


def test_we_say_what_every_broker_must_refuse_and_log_in_nowhere() -> None:
    """A CONNECT of a version that there is not: by it no broker takes us for the running agent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE_S)
        theirs.sendall(b"\x20\x02\x00\x01")
        _answer("b:1", ours)
        found = theirs.recv(100)
    assert found[0] == 0x10
    assert found[1] == len(found) - 2
    assert (found[4:8], found[8]) == (b"MQTT", 127)
    assert found[-2:] == b"\0\0", "no client id"


def test_a_port_that_speaks_no_tls_is_asked_for_its_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over a real socket: the handshake is answered by MQTT."""
    monkeypatch.setattr(broker_look, "tls_of", lambda _broker: ssl.create_default_context())
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"\x20\x02\x00\x01\x00\x00\x00\x00")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(LocalError, match="is this its port for TLS"):
            look(BrokerConfig(port=server.getsockname()[1]))
        thread.join(PATIENCE_S)

"""The metrics port of a part is as hard to hold up as its HTTP: half requests, strange hosts and
many connections cost it nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextlib import AsyncExitStack

import httpx
import pytest

from edgewake.cloud import metrics, metrics_port
from edgewake.cloud.web import limits as web_limits
from tests.services import PATIENCE_S, free_ports, wait_until

HALF = 300
GREEDY = "127.0.0.2"
"""Another address of the loopback: the attacker's."""


@pytest.fixture
def port() -> int:
    """A port that is served."""
    (found,) = free_ports(1)
    metrics_port.serve(
        found,
        lambda: [metrics.gauge("edgewake_test", "A figure", 7)],
        part="test",
        why_not_ready=lambda: "behind",
    )
    wait_until(
        lambda: httpx.get(f"http://127.0.0.1:{found}/healthz").status_code == 200, "it answers"
    )
    return found


def get(port: int, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=PATIENCE_S)


def test_it_says_figures_life_and_readiness(port: int) -> None:
    assert "edgewake_test 7.0" in get(port, "/metrics").text
    assert "process_resident_memory_bytes" in get(port, "/metrics").text
    assert get(port, "/healthz").json() == {"status": "ok"}
    assert (get(port, "/readyz").status_code, get(port, "/readyz").json()["detail"]) == (
        503,
        "behind",
    )
    assert get(port, "/secrets").status_code == 404


def test_a_stranger_s_host_name_is_refused_and_a_private_network_s_is_not(port: int) -> None:
    assert get(port, "/metrics", Host="evil.example").status_code == 421
    assert get(port, "/metrics", Host="bridge-1:9100").status_code == 200, (
        "as a Prometheus of the same network calls it"
    )


async def half_requests(port: int, count: int, stack: AsyncExitStack) -> list[asyncio.StreamReader]:
    """So many connections that each sent half a head."""
    readers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(GREEDY, 0))
        stack.push_async_callback(gone, writer)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-a: ")
        readers.append(reader)
    return readers


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Is it closed, with or without a word?"""
    try:
        return (await reader.read())[:12] in (b"", b"HTTP/1.1 503")
    except ConnectionError:
        return True


async def test_half_requests_make_no_threads_and_leave_room_for_others(port: int) -> None:
    before = threading.active_count()
    async with AsyncExitStack() as stack:
        readers = await half_requests(port, HALF, stack)
        answer = await asyncio.to_thread(get, port, "/metrics")
        assert answer.status_code == 200
        assert threading.active_count() - before <= 4, "those of to_thread"
        async with asyncio.timeout(PATIENCE_S):
            assert all(
                [await ended(reader) for reader in readers[metrics_port.CONNECTIONS_MAX :]]
            ), "the attack was there, and met the bound"


async def test_a_half_request_is_closed_in_its_time(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_limits, "HEAD_S", 0.5)
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
        (reader,) = await half_requests(port, 1, stack)
        assert await ended(reader)


def test_a_port_in_use_is_said_to_who_starts_it(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        metrics_port.serve(port, list, part="test")

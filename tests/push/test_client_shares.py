"""What one client may have of a proxy.

In a file of its own: another proxy of the same group would take a part of its leases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.push.service import Reader, Readings, Service, serving
from tests.push.test_limits import Asking, access, directory, stream
from tests.services import PATIENCE_S, Kafka

__all__ = ["access", "directory", "stream"]
"""Fixtures."""


async def test_one_client_takes_its_share_of_leases_and_filters_and_others_are_served(
    kafka: Kafka, access: Service, stream: Readings, tmp_path: Path
) -> None:
    """Clients are addresses of the loopback; that one says it is somebody else counts for
    nothing.
    """
    client = Reader(access.url, stream.stream)
    await client.stand()
    (tmp_path / "cursor.keys").write_text(f"1 {'ab' * 32}\n")
    bounds = {"leases_max": 80, "scanned_filters_max": 20}
    with serving(
        "push", kafka.bootstrap, tmp_path, allow_hosts=["127.0.0.1"], name="push-shares", **bounds
    ) as push:
        granted: list[dict[str, Any]] = []

        async def asked(address: str, where: str) -> int:
            headers = {"X-Forwarded-For": f"198.51.100.{len(where)}"}
            transport = httpx.AsyncHTTPTransport(local_address=address)
            async with httpx.AsyncClient(
                transport=transport, headers=headers, base_url=push.url, timeout=PATIENCE_S
            ) as http:
                asking = Asking(http, client)
                answer = await asking.ask(where)
                granted.extend(asking.granted)
                return answer.status_code

        greedy = [await asked("127.0.0.2", f"device = 'd{n}'") for n in range(22)]
        assert greedy == [201] * 20 + [429] * 2
        assert await asked("127.0.0.3", "device = 'other'") == 201
        filters = [await asked("127.0.0.4", f"n > {n}") for n in range(7)]
        assert filters == [201] * 5 + [429] * 2
        assert await asked("127.0.0.3", "n > 1000") == 201
        async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as http:
            for lease in granted:  # other tests of this Kafka count what is there
                await Asking(http, client).end(lease)

"""The side that is woken: counts the wake-ups of each lease and when they came.

`python -m tests.bench.push_receiver`

Prints its port; for each line on its standard input it prints what came so far as JSON: lease →
[[arrival in ms, ms when the wake-up's first event was written], …].
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict

ANSWER = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"


async def main() -> None:
    """Serve until the standard input ends."""
    came: dict[str, list[tuple[int, int]]] = defaultdict(list)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            came[body["lease"]].append(
                (
                    time.time_ns() // 1_000_000,
                    body["events"][0]["received_at"] if body["events"] else 0,
                )
            )
            writer.write(ANSWER)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(came), flush=True)


if __name__ == "__main__":
    asyncio.run(main())

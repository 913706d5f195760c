"""An OPC UA server as a process, one of several that have the same values with the same times: its
values follow from the clock, which all of them have.

    python redundant_opcua.py PORT FIRST_MS
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta

from asyncua import Server, ua

STEP_MS = 20
"""Milliseconds from one value to the next."""


async def main(port: int, first_ms: int) -> None:
    server = Server()
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
    await server.register_namespace("urn:test")
    counter = await server.nodes.objects.add_object("ns=2;s=Counter", "2:Counter")
    value = await counter.add_variable("ns=2;s=Counter.Value", "2:Value", -1)
    start = datetime.fromtimestamp(first_ms / 1000, UTC)
    async with server:
        number = max(0, int(time.time() * 1000 - first_ms) // STEP_MS)
        while True:
            due_ms = first_ms + number * STEP_MS
            await asyncio.sleep(max(0.0, due_ms / 1000 - time.time()))
            at = start + timedelta(milliseconds=number * STEP_MS)
            variant = ua.Variant(number, ua.VariantType.Int64)
            await value.write_value(ua.DataValue(variant, SourceTimestamp=at))
            number += 1


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))

"""The rival: sse-starlette given its best, on the same Kafka topic.

`python -m tests.bench.sse_rival BOOTSTRAP TOPIC PORT`. As fast as the library allows: uvicorn with
uvloop and httptools as ours, each event made ready as bytes once for all clients (the library
passes bytes through), what comes within 20 ms joined into one piece as ours is, no cursor to sign
(the Kafka offset is the id), one queue of pieces per client. A full queue drops its client's piece.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial

import orjson
import uvicorn
from confluent_kafka import TopicPartition
from fastapi import FastAPI
from sse_starlette import EventSourceResponse

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.frames import record

QUEUE = 1000
TICK_S = 0.02


def build(bootstrap: str, topic: str) -> FastAPI:
    """An application that sends each reading of a topic to each client."""
    app = FastAPI()
    queues: set[asyncio.Queue[bytes]] = set()
    waiting: list[bytes] = []

    def share() -> None:
        piece = b"".join(waiting)
        waiting.clear()
        for queue in queues:
            if not queue.full():
                queue.put_nowait(piece)

    def take(events: list[bytes]) -> None:
        if not waiting:
            asyncio.get_running_loop().call_later(TICK_S, share)
        waiting.extend(events)

    def start() -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=pump,
            args=(bootstrap, topic, partial(loop.call_soon_threadsafe, take)),
            name="pump",
            daemon=True,
        ).start()

    async def follow() -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)
        queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            queues.discard(queue)

    @app.get("/events")
    async def events() -> EventSourceResponse:
        if not any(thread.name == "pump" for thread in threading.enumerate()):
            start()
        return EventSourceResponse(follow(), ping=15)

    return app


def pump(bootstrap: str, topic: str, take: Callable[[list[bytes]], object]) -> None:
    """Read the topic from its end on, and make each reading's bytes."""
    consumer = clients.consumer(KafkaConfig(bootstrap=bootstrap), "rival")
    client = clients.admin(KafkaConfig(bootstrap=bootstrap))
    ends = [
        watermarks(consumer, topic, p)[1] for p in range(metadata.partition_count(client, topic))
    ]
    consumer.assign([TopicPartition(topic, p, end) for p, end in enumerate(ends)])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        readings = record.readings(record.decode(message.value()))
        where = b"%d:%d" % (message.partition(), message.offset())
        take(
            [
                b"id: %b:%d\ndata: %b\n\n" % (where, i, orjson.dumps(r))
                for i, r in enumerate(readings)
            ]
        )


if __name__ == "__main__":
    application = build(sys.argv[1], sys.argv[2])
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=int(sys.argv[3]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
    )

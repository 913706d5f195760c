"""The rival: the usual way with sse-starlette, a queue per client and event by event, on the same Kafka topic.

`python -m tests.bench.sse_rival BOOTSTRAP TOPIC PORT`. Fair: uvicorn with uvloop and httptools as ours, events encoded once for all
clients, no cursor to sign (the Kafka offset is the id); a full queue drops its client's event instead of growing.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator

import orjson
import uvicorn
from confluent_kafka import TopicPartition
from fastapi import FastAPI
from sse_starlette import EventSourceResponse, ServerSentEvent

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import record

QUEUE = 1000


def build(bootstrap: str, topic: str) -> FastAPI:
    """An application that sends each reading of a topic to each client."""
    app = FastAPI()
    queues: set[asyncio.Queue[ServerSentEvent]] = set()

    def share(events: list[ServerSentEvent]) -> None:
        for queue in queues:
            for event in events:
                if not queue.full():
                    queue.put_nowait(event)

    def pump(loop: asyncio.AbstractEventLoop) -> None:
        consumer = clients.consumer(KafkaConfig(bootstrap=bootstrap), "rival")
        client = clients.admin(KafkaConfig(bootstrap=bootstrap))
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(metadata.partition_count(client, topic))]
        consumer.assign([TopicPartition(topic, p, end) for p, end in enumerate(ends)])
        while True:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            readings = record.readings(record.decode(message.value()))
            events = [
                ServerSentEvent(orjson.dumps(r).decode(), id=f"{message.partition()}:{message.offset()}:{i}")
                for i, r in enumerate(readings)
            ]
            loop.call_soon_threadsafe(share, events)

    async def follow() -> AsyncIterator[ServerSentEvent]:
        queue: asyncio.Queue[ServerSentEvent] = asyncio.Queue(QUEUE)
        queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            queues.discard(queue)

    @app.get("/events")
    async def events() -> EventSourceResponse:
        if not any(thread.name == "pump" for thread in threading.enumerate()):
            threading.Thread(target=pump, args=(asyncio.get_running_loop(),), name="pump", daemon=True).start()
        return EventSourceResponse(follow(), ping=15)

    return app


if __name__ == "__main__":
    application = build(sys.argv[1], sys.argv[2])
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[3]), loop="uvloop", http="httptools", log_level="warning")

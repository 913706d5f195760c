"""What the lake takes from Kafka. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from confluent_kafka import Message

from edgewake.cloud.lake.shape import SUMMARIES, Kind
from edgewake.protocol import topics
from edgewake.protocol.names import is_stream
from edgewake.protocol.ops import result


@dataclass(frozen=True, slots=True)
class Source:
    """A topic whose rows are kept."""

    topic: str
    kind: Kind
    name: str
    """Stream or query, or `summaries.` and the step."""


def source_of(topic: str) -> Source | None:
    """The source on a topic; None where it has no readings, results or retained summaries.

    Minutes are in the analysis' own Parquet.
    """
    if topic in (topics.HOURS, topics.DAYS):
        return Source(
            topic, Kind.SUMMARY, f"{SUMMARIES}.{topic.removeprefix(topics.SUMMARIES_PREFIX)}"
        )
    if (parsed := topics.parse_query_topic(topic)) is not None:
        return Source(topic, Kind.QUERY, parsed[0])
    name = topic.removeprefix(topics.STREAM_PREFIX)
    return Source(topic, Kind.STREAM, name) if name != topic and is_stream(name) else None


def sources_of(
    found: Iterable[str], *, only: Collection[str] = (), leave_out: Collection[str] = ()
) -> dict[str, Source]:
    """Topic → what is kept of it. `only`: names; none: all."""
    sources = {topic: source_of(topic) for topic in found}
    return {
        topic: one
        for topic, one in sources.items()
        if one is not None and one.name not in leave_out and (not only or one.name in only)
    }


def newest(found: Iterable[Source]) -> dict[str, Source]:
    """Name → the topic that it stands for.

    It is the last registration of a query, before a stream of that name.
    """
    ranked: dict[str, tuple[int, Source]] = {}
    for source in found:
        parsed = topics.parse_query_topic(source.topic)
        rank = parsed[1] if parsed is not None else -1
        if source.name not in ranked or rank > ranked[source.name][0]:
            ranked[source.name] = (rank, source)
    return {name: source for name, (_, source) in ranked.items()}


def is_row(message: Message) -> bool:
    """Does it hold readings, a result or a summary, and not a watermark?"""
    return not result.is_watermark(message.key())

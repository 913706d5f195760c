"""Which streams of the log stand for one stream of the configuration. Pure."""

from __future__ import annotations

from typing import Final

from edgewake.protocol.topics import of_all_things, of_thing, stream_and_thing

STREAM: Final = "\0stream"
"""Says of an object or a reading on its way into the log which stream it is of, where that is not
its source's own; no field can be called so."""


def streams_of(stream: str, *, of_things: bool) -> list[str]:
    """What a consumer of a stream reads: with `of_things`, also those of all things."""
    return [stream, of_all_things(stream)] if of_things else [stream]


def made_of(name: str, into: str) -> str:
    """Where it goes what is made of a stream of the log: a thing's is the thing's, too."""
    _, thing = stream_and_thing(name)
    return of_thing(into, thing) if thing else into

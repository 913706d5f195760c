"""The child process that holds the sketches of one stream.

It is `python -m edgewake.edge.sketches.maker KIND…`.

Apache DataSketches needs NumPy, which weighs half as much as the agent; here it costs only who has
sketches, and a fault of native code ends this process and no other. It reads messages on standard
input, each a length of four bytes and JSON, and ends with it:

    {"values": [[window, field, [value, …]], …]}      no answer
    {"over": window}                                  {"sketches": [[field, kind, readings, base64],
                                                      …]}, in the order of fields and kinds
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import orjson

from edgewake.edge.sketches.kinds import MAKERS, Filled
from edgewake.edge.sketches.pipe import LENGTH
from edgewake.protocol.sketches.sketch import SketchKind


class Maker:
    """Makes the sketches of all open windows."""

    def __init__(
        self,
        kinds: Sequence[SketchKind],
        makers: Mapping[SketchKind, Callable[[], Filled]] = MAKERS,
    ) -> None:
        self._makers = {kind: makers[kind] for kind in kinds}
        self._windows: dict[str, dict[str, dict[SketchKind, Filled]]] = {}

    def take(self, values: Sequence[Sequence[Any]]) -> None:
        """Values of windows and fields."""
        for window, field, some in values:
            fields = self._windows.setdefault(window, {})
            if field not in fields:
                fields[field] = {kind: make() for kind, make in self._makers.items()}
            for filled in fields[field].values():
                filled.add(some)

    def over(self, window: str) -> list[tuple[str, str, int, str]]:
        """A window's sketches, those that saw something; it is forgotten."""
        return [
            (field, kind.value, filled.readings, base64.b64encode(filled.data()).decode())
            for field, kinds in sorted(self._windows.pop(window, {}).items())
            for kind, filled in kinds.items()
            if filled.readings
        ]


def serve(maker: Maker, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Answer requests until standard input ends."""
    while len(head := incoming.read(LENGTH.size)) == LENGTH.size:
        message: Mapping[str, Any] = orjson.loads(incoming.read(*LENGTH.unpack(head)))
        if "values" in message:
            maker.take(message["values"])
        else:
            answer = orjson.dumps({"sketches": maker.over(message["over"])})
            outgoing.write(LENGTH.pack(len(answer)) + answer)
            outgoing.flush()


if __name__ == "__main__":
    serve(Maker([SketchKind(kind) for kind in sys.argv[1:]]), sys.stdin.buffer, sys.stdout.buffer)

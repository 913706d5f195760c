"""Lines that are added to a file, through rotation and truncation, each taken exactly once.

How far it has read is committed in the same transaction as the readings taken from there: after a
crash at any moment the next start goes on behind the last accepted line. Which files belong to it
after rotations is decided in `rotation`; a thread reads them (`follower`), so that a disk that does
not answer stops nothing else. A last line without an end waits for it; in a file that was rotated
and is quiet it counts as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from edgewake.edge.daemon_thread import DaemonThread
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.follower import FilePositions, Follower, Taken
from edgewake.edge.sources.lines.line_format import LineFormat, LinesConfig
from edgewake.edge.sources.mapping import MessageMaps
from edgewake.protocol.clock import Clock
from edgewake.protocol.plain import key

log = logging.getLogger("edgewake.source")


class FileTailConfig(LinesConfig):
    """Lines that are added to a file, through rotation and truncation."""

    type: Literal["file_tail"]
    path: Path
    """The file; it may be created later."""
    format: LineFormat = LineFormat.JSON
    """json: each line is a JSON object; text: each becomes the field `line`; csv: values of
    `columns`; influx: a point of InfluxDB's line protocol; nmea: a sentence of NMEA 0183; gpsd: a
    report of gpsd."""
    start: Literal["beginning", "end"] = "beginning"
    """Where to begin when this file was never read before."""
    poll_s: float = key(default=0.2, ge=0.01, le=60)
    """Seconds between two looks at the file's end."""

    def source(self, context: SourceContext) -> FileTail:
        return FileTail(
            self, context.clock, position=context.position, maps=self.message_maps(context)
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_columns(self.format)

    def owns(self) -> str:
        return f"the file {self.path}"


class FileTail:
    """Follows the file, and queues a reading for each line that is added.

    `position` gives what the log remembers of it, None where it was never read; it may block.
    """

    policy = Policy.BLOCK

    def __init__(
        self,
        config: FileTailConfig,
        clock: Clock,
        *,
        position: Callable[[str], str | None],
        maps: MessageMaps | None = None,
    ) -> None:
        self._config = config
        self._lines = config.reader(config.format, maps)
        self._clock = clock
        self._name = f"file_tail:{config.path}"
        self._ask_position = position
        self._position: FilePositions | None = None
        """After the last lines that were passed on: a restart of this source goes on there, before
        they are committed."""
        self.looked = False
        """Has it looked for its file? From then on nothing that is added is missed."""

    async def run(self, intake: Intake) -> None:
        with DaemonThread(self._name) as thread:
            follower = await thread.call(self._begin)
            try:
                await self._follow(follower, thread, intake)
            finally:
                thread.soon(follower.close)

    def _begin(self) -> Follower:
        if self._position is None:
            known = self._ask_position(self._name)
            try:
                self._position = FilePositions.decode(known) if known else None
            except (ValueError, KeyError, TypeError) as error:
                log.error(
                    "%s: how far it was read cannot be told (%s): all of it is read",
                    self._config.path, error,
                    extra={"event": "source.no_position", "path": str(self._config.path)},
                )  # fmt: skip
                return Follower(self._config.path, at_end=False, position=None)
        return Follower(
            self._config.path, at_end=self._config.start == "end", position=self._position
        )

    async def _follow(self, follower: Follower, thread: DaemonThread, intake: Intake) -> None:
        truncations = 0
        while True:
            taken: Taken | None = await thread.call(
                lambda: follower.read(self._clock.monotonic_s())
            )
            self.looked = True
            for name in follower.packed:
                intake.miss(f"{name} was packed before it was read to its end: that is lost")
            follower.packed = ()
            if follower.truncations != truncations:
                truncations = follower.truncations
                log.warning(
                    "%s was truncated: read from its beginning",
                    self._config.path,
                    extra={"event": "source.truncated"},
                )
            if taken is None:
                # Where it began holds from now on, also if nothing comes before the next start.
                if self._position is None:
                    self._position = follower.position()
                    await intake.put([], position=(self._name, self._position.encode()))
                await self._clock.sleep(self._config.poll_s)
                continue
            await intake.put(
                self._lines.readings(intake, taken.lines),
                position=(self._name, taken.position.encode()),
            )
            self._position = taken.position

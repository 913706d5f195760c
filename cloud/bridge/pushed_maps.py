"""The maps that a bridge uses: those that operations pushed, else those of its file or presets.

A version that this bridge cannot use (it is older than the operations server that checked it)
changes nothing: the maps of before stay, and the fault is logged.
"""

from __future__ import annotations

import logging
from typing import Final

from edgewake.cloud.bridge.config import MapsConfig
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.maps.map_file import MapFile
from edgewake.protocol.maps.rule import Maps
from edgewake.protocol.ops.pushed_maps import PushedMaps, decode

log = logging.getLogger("edgewake.maps")

NONE: Final = Maps((), "none", (), {})
"""No maps: none are pushed yet, and no file or preset is named."""


class BridgeMaps:
    """The maps of one bridge."""

    def __init__(self, config: MapsConfig) -> None:
        """Raises ConfigError."""
        self._config = config
        self._file: MapFile | None = None
        if config.file is not None or config.presets:
            self._file = MapFile(config.file, config.presets, zone=config.zone, needs_names=True)
        self._newest: PushedMaps | None = None
        self._tried: PushedMaps | None = None
        """The last one that was compiled, good or not."""
        self._pushed: Maps | None = None
        self.version = 0
        """The pushed version in use; 0: none."""
        self.maps = self._of_file()

    def follow(self, key: str, value: bytes | None) -> None:
        """Takes a record of `ew.maps`. Raises ValueError."""
        if value is None:
            return  # one that is too old to be kept, or had a number that was another's
        row = decode(key, value)
        if self._newest is None or row.version > self._newest.version:
            self._newest = row

    def look(self) -> bool:
        """Reads what changed. Returns whether other maps are in use. Blocking."""
        newest = self._newest
        if newest is not None and newest is not self._tried:
            self._tried = newest
            self._take(newest)
        if self._file is not None:
            self._file.look()
        before, self.maps = self.maps, self._pushed or self._of_file()
        return before.version != self.maps.version

    def _take(self, row: PushedMaps) -> None:
        try:
            self._pushed = self._compiled(row.text) if row.text else None
        except ConfigError as error:
            log.error(
                "pushed maps, version %d: keeping the previous maps: %s",
                row.version,
                error,
                extra={"event": "maps.refused", "version": row.version},
            )
            return
        self.version = row.version if row.text else 0
        log.info(
            "pushed maps, version %d of %s: %s",
            row.version,
            row.changed_by,
            ", ".join(self._pushed.filters) if self._pushed else "none",
            extra={"event": "maps.loaded", "version": row.version},
        )

    def _compiled(self, text: str) -> Maps:
        return compile_maps(text, "pushed maps", zone=self._config.zone, needs_names=True)

    def _of_file(self) -> Maps:
        return NONE if self._file is None else self._file.maps

"""A map file that may change while it is in use: it is checked regularly and read again.

A file that became faulty changes nothing: the previous maps stay, and the fault is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.changing_file import ChangingFile
from edgewake.protocol.maps.compiling import FILE_BYTES_MAX, compile_maps, compile_presets
from edgewake.protocol.maps.rule import Maps

log = logging.getLogger("edgewake.maps")

LOOK_S: Final = 2.0
"""Seconds between two checks of the file."""


class MapFile:
    """The maps of a file, or of presets alone. Its methods block."""

    def __init__(
        self,
        path: Path | None,
        presets: Sequence[str] = (),
        *,
        zone: str = "UTC",
        needs_names: bool = False,
        text: str | None = None,
    ) -> None:
        """Takes a path, or presets, or in `text` the content of a map file. Raises ConfigError."""
        if [path is not None, bool(presets), text is not None].count(True) != 1:
            raise ConfigError("maps: expected either a file, or presets, or a text")
        self._zone = zone
        self._needs_names = needs_names
        self._file: ChangingFile[Maps] | None = None
        self.maps: Maps
        if text is not None:
            self.maps = self._compiled(text, "maps_text")
        elif path is None:
            self.maps = compile_presets(presets, zone=zone, needs_names=needs_names)
        else:
            self._file = ChangingFile(
                path,
                lambda read: self._compiled(read, str(path)),
                what="maps",
                log=log,
                event="maps.refused",
                bytes_max=FILE_BYTES_MAX,
                is_named=True,
            )
            self.maps = self._file.value
        self._say("serve")

    def look(self) -> bool:
        """Reads the file again if it changed. Returns whether the maps changed."""
        if self._file is None or not self._file.look():
            return False
        is_new = self._file.value.version != self.maps.version
        self.maps = self._file.value
        if is_new:
            self._say("changed")
        return is_new

    def _compiled(self, text: str, where: str) -> Maps:
        return compile_maps(text, where, zone=self._zone, needs_names=self._needs_names)

    def _say(self, what: str) -> None:
        log.info(
            "maps %s: version %s, %d maps, topics %s",
            what,
            self.maps.version,
            len(self.maps.maps),
            ", ".join(self.maps.filters),
            extra={"event": "maps.loaded", "version": self.maps.version},
        )

"""A map file that may change while it is in use: it is checked regularly and read again.

A file that became faulty changes nothing: the previous maps stay, and the fault is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import ConfigError
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
        self._path = path
        self._zone = zone
        self._needs_names = needs_names
        self._seen = self._mark()
        self.maps: Maps
        if text is not None:
            self.maps = compile_maps(text, "maps_text", zone=zone, needs_names=needs_names)
        elif path is None:
            self.maps = compile_presets(presets, zone=zone, needs_names=needs_names)
        else:
            self.maps = self._read(path)
        self._say("serve")

    def look(self) -> bool:
        """Reads the file again if it changed. Returns whether the maps changed."""
        if self._path is None or (mark := self._mark()) == self._seen:
            return False
        self._seen = mark
        try:
            maps = self._read(self._path)
        except ConfigError as error:
            log.error(
                "keeping the previous maps, because the file is faulty: %s",
                error,
                extra={"event": "maps.refused", "version": self.maps.version},
            )
            return False
        if maps.version == self.maps.version:
            return False
        self.maps = maps
        self._say("changed")
        return True

    def _read(self, path: Path) -> Maps:
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX + 1).decode("utf-8-sig")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from error
        return compile_maps(text, str(path), zone=self._zone, needs_names=self._needs_names)

    def _mark(self) -> tuple[int, int, int] | None:
        """Returns a value that differs whenever the file differs; None where there is no file."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)

    def _say(self, what: str) -> None:
        log.info(
            "maps %s: version %s, %d maps, topics %s",
            what,
            self.maps.version,
            len(self.maps.maps),
            ", ".join(self.maps.filters),
            extra={"event": "maps.loaded", "version": self.maps.version},
        )

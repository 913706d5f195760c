"""Firmware and software of ThingsBoard's devices, from a folder: `DIR/TITLE/VERSION` is a file.

A device that has `fw_title` and `fw_version` among its shared attributes asks for it in chunks.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

log = logging.getLogger("edgewake.bridge.thingsboard")

FILE_BYTES_MAX: Final = 16 << 20
"""Bytes of a file: a device without a chunk size asks for all of it in one message."""
FILES_MAX: Final = 1_000
KINDS: Final = ("fw", "sw")
"""Firmware and software: how their attributes and topics begin."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")


class Image(NamedTuple):
    """A file."""

    path: Path
    size: int
    checksum: str
    """SHA-256."""


class Firmware:
    """`look` and `chunk` block."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._images: Mapping[tuple[str, str], Image] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._said: set[Path] = set()

    def look(self) -> None:
        """Read what came or changed. A folder that cannot be read changes nothing."""
        if self._folder is None:
            return
        try:
            files = sorted(self._folder.glob("*/*"))
        except OSError as error:
            log.error(
                "firmware_dir: %s; what was read before stays",
                error,
                extra={"event": "thingsboard.firmware"},
            )
            return
        if len(files) > FILES_MAX:
            self._say(self._folder, f"more than {FILES_MAX} files: the others are not offered")
        found = {}
        for path in files[:FILES_MAX]:
            try:
                image = self._read(path)
            except OSError as error:
                self._say(path, f"{error}: it is not offered")
                continue
            if image is not None:
                found[path.parent.name, path.name] = image
        self._images = found

    def _read(self, path: Path) -> Image | None:
        """None: it is not offered. Raises OSError."""
        title, version = path.parent.name, path.name
        if not path.is_file() or not _NAME.fullmatch(title) or not _NAME.fullmatch(version):
            return None
        state = path.stat()
        if state.st_size > FILE_BYTES_MAX:
            self._say(path, f"{state.st_size} bytes: expected at most {FILE_BYTES_MAX}")
            return None
        stamp, before = (state.st_mtime_ns, state.st_size), self._images.get((title, version))
        if before is not None and self._seen.get(path) == stamp:
            return before
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self._seen[path] = stamp
        return Image(path, state.st_size, digest)

    def _say(self, path: Path, why: str) -> None:
        if path not in self._said:
            self._said.add(path)
            log.warning("%s: %s", path, why, extra={"event": "thingsboard.firmware"})

    def of(self, kind: str, shared: Mapping[str, Any]) -> Image | None:
        """The image that a device's shared attributes name."""
        return self._images.get(
            (str(shared.get(f"{kind}_title")), str(shared.get(f"{kind}_version")))
        )

    def described(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes with size and checksum beside the title and version of an image.

        Raises ValueError where there is no such image.
        """
        described = dict(values)
        for kind in KINDS:
            if f"{kind}_title" not in values or f"{kind}_checksum" in values:
                continue
            image = self.of(kind, values)
            if image is None:
                raise ValueError(
                    f"no {values[f'{kind}_title']!r} {values.get(f'{kind}_version')!r} in "
                    f"firmware_dir = {self._folder}: expected the file TITLE/VERSION there"
                )
            described |= {
                f"{kind}_size": image.size,
                f"{kind}_checksum": image.checksum,
                f"{kind}_checksum_algorithm": "SHA256",
            }
        return described


def span(image: Image, size: int, number: int) -> tuple[int, int]:
    """Where a piece begins, and its bytes: none behind the end. `size` 0: all in one."""
    begin = size * number
    if begin >= image.size or (number and not size):
        return 0, 0
    return begin, min(size or image.size, image.size - begin)


def chunk(image: Image, size: int, number: int) -> bytes:
    """A piece of an image, as `span` says. Raises OSError."""
    begin, count = span(image, size, number)
    if not count:
        return b""
    with image.path.open("rb") as file:
        return os.pread(file.fileno(), count, begin)

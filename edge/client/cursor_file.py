"""The cursor in a file, replaced as a whole: where `edgewake tail` goes on next time.

Without a file nothing is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edgewake.edge import durable_file
from edgewake.protocol.cursor import TEXT_MAX, stream_hash, stream_hashes
from edgewake.protocol.errors import ConfigError

SPACE_CHARS: Final = 64
"""Characters beside a cursor: a line end, and what an editor may have added. The rest of a larger
file is not read: it cannot be a cursor."""


class CursorFile:
    """A file that keeps a client's cursor.

    Raises ConfigError, at the start rather than after the first event.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._saved = ""

    def read(self, streams: Sequence[str] | None) -> str:
        """The cursor saved last time, or nothing.

        It must belong to these streams (None: only the server knows them), and the file must be
        writable, so that the next cursor can be saved.
        """
        if self._path is None:
            return ""
        text = self._read() if self._path.exists() else ""
        if streams is not None:
            self._check(text, streams)
        self._write(text)
        self._saved = text
        return text

    def save(self, cursor: str) -> None:
        """Save a cursor."""
        if self._path is not None and cursor and cursor != self._saved:
            self._write(cursor)
            self._saved = cursor

    def _read(self) -> str:
        assert self._path is not None
        if not self._path.is_file():
            raise ConfigError(f"{self._path}: is not a file")
        try:
            with self._path.open(encoding="ascii") as file:
                text = file.read(TEXT_MAX + SPACE_CHARS).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path}: cannot be read: {error}") from error
        if len(text) > TEXT_MAX or not text.isprintable() or " " in text:
            raise ConfigError(f"{self._path}: is not a cursor; remove it to start again")
        return text

    def _check(self, text: str, streams: Sequence[str]) -> None:
        """Check that the saved cursor's streams are all among `streams`.

        One more stream is fine; one less would silently lose the position in it.
        """
        saved = stream_hashes(text)
        if saved is not None and not saved <= {stream_hash(stream) for stream in streams}:
            raise ConfigError(
                f"{self._path}: was saved for other streams than {', '.join(streams)}; name those "
                "it was saved for, or another file"
            )

    def _write(self, text: str) -> None:
        """Replace the file; an empty text shows that it could be done."""
        assert self._path is not None
        try:
            if text:
                durable_file.replace(self._path, (text + "\n").encode("ascii"))
            else:
                durable_file.check(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from error

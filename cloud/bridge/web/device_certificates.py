"""Certificates of devices at the bridge's door for HTTP: those that they have at the MQTT broker.

That one was signed by our authority and is in time says TLS; that it was not taken back says the
file in which the operations API keeps who has which, at each request.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from edgewake.cloud.web.tls import Certificate
from edgewake.protocol.certificates import book as books
from edgewake.protocol.certificates.book import Book
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.device_tokens import Holder

log = logging.getLogger("edgewake.bridge.certificates")

FILE_BYTES_MAX: Final = 32 << 20
"""Bytes of the file: a hundred thousand devices, and as many that were taken back."""


class DeviceCertificates:
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError. A file that is not there yet lets nobody in."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        """What was read last: a file that cannot be opened is tried again, what is wrong in one is
        not read again."""
        self._failed = ""
        self._book = self._read()

    def holder_of(self, shown: Certificate) -> Holder | None:
        """The device whose certificate it is; None: it was taken back, or is nobody's.

        The file is asked each time: one that was taken back a moment ago is good no more.
        """
        self.look()
        held = self._book.held.get(shown.name)
        if held is None or held.serial.lower().lstrip("0") != shown.serial:
            return None
        return Holder(shown.name)

    def look(self) -> bool:
        """Read the file again where it changed. One that became wrong changes nothing.

        Was it read?
        """
        try:
            if self._stamp() == self._seen:
                return False
            self._book = self._read()
        except (OSError, ConfigError) as error:
            if str(error) != self._failed:  # once, however many certificates are shown meanwhile
                self._failed = str(error)
                text = "the certificates of before stay: %s"
                log.error(text, error, extra={"event": "certificates.refused"})
            return False
        self._failed = ""
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> Book:
        try:
            stamp = self._stamp()
            if stamp is None:
                self._seen = None
                return Book()
            with self._path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX + 1)
            self._seen = stamp
            if len(text) > FILE_BYTES_MAX:
                raise ValueError(f"expected at most {FILE_BYTES_MAX} bytes")
            return books.parse(text.decode())
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise ConfigError(f"certificates_file = {self._path}: {error}") from error

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
from edgewake.protocol.files.changing_file import ChangingFile
from edgewake.protocol.maps.device_tokens import Holder

FILE_BYTES_MAX: Final = 32 << 20
"""Bytes of the file: a hundred thousand devices, and as many that were taken back."""


class DeviceCertificates(ChangingFile[Book]):
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError. A file that is not there yet lets nobody in."""
        super().__init__(
            path,
            _parse,
            what="certificates",
            log=logging.getLogger("edgewake.bridge.certificates"),
            event="certificates.refused",
            key="certificates_file",
            bytes_max=FILE_BYTES_MAX,
            may_be_missing=True,
        )

    def holder_of(self, shown: Certificate) -> Holder | None:
        """The device whose certificate it is; None: it was taken back, or is nobody's.

        The file is asked each time: one that was taken back a moment ago is good no more.
        """
        self.look()
        held = self.value.held.get(shown.name)
        if held is None or held.serial.lower().lstrip("0") != shown.serial:
            return None
        return Holder(shown.name)


def _parse(text: str) -> Book:
    """Raises ValueError."""
    try:
        return books.parse(text)
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(str(error)) from error

"""Logs are events: one line each, with a fixed identifier and a sentence, never a payload.

    log = logging.getLogger("edgewake.bridge")
    log.info("connected to the broker", extra={"event": "mqtt.connected", "host": …})

On a terminal: time, level in colour, part, sentence. Otherwise one JSON object a line on standard
error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import sys
import time
from typing import TextIO

import orjson

from edgewake.protocol.printable import printable

TALKATIVE = ("httpx", "httpcore")
"""Libraries whose logs contain whole addresses and request headers, in which there are tokens,
cursors and endpoints' secrets."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonLines(logging.Formatter):
    """Formats log records as JSON lines for programs."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": int(record.created * 1000),
            "level": record.levelname.lower(),
            "part": record.name,
            "text": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # a text that UTF-8 cannot carry
            return json.dumps(line, default=str)


class Coloured(logging.Formatter):
    """Formats log records for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        colour = _COLOURS.get(record.levelname, "0")
        extras = printable(
            " ".join(
                f"{name}={value}" for name, value in _extras(record).items() if name != "event"
            )
        )
        said = printable(record.getMessage(), keep="\n")
        text = (
            f"\x1b[2m{clock}\x1b[0m \x1b[{colour}m{record.levelname.lower():<8}\x1b[0m "
            f"{record.name}: {said}"
        )
        if extras:
            text += f" \x1b[2m{extras}\x1b[0m"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up(*, verbose: bool = False, stream: TextIO = sys.stderr) -> None:
    """Send all logs to `stream`; call once, first thing in a process.

    A crash in a library's C code is written to standard error, with where each thread was: without
    that the process ends and nothing says why.
    """
    with contextlib.suppress(OSError, ValueError):  # standard error has no file number
        faulthandler.enable()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Coloured() if stream.isatty() else JsonLines())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True
    )

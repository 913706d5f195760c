"""What may never be in a log."""

from __future__ import annotations

import io
import logging
import signal
import subprocess
import sys

import httpx

from edgewake.protocol import log

SECRET = "0123456789abcdef.fedcba9876543210"


def test_addresses_that_a_library_asks_are_not_logged() -> None:
    """They have tokens of leases, cursors and the secrets of endpoints in them.

    The control is a line of our own.
    """
    said = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        for verbose in (False, True):
            log.set_up(verbose=verbose, stream=said)
            with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as http:
                http.get(f"http://push/v1/leases?lease={SECRET}")
            logging.getLogger("edgewake.test").info("asked")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert said.getvalue().count("asked") == 2
    assert SECRET not in said.getvalue()


CRASH = """
import ctypes
from edgewake.protocol import log
log.set_up()
def in_the_library():
    ctypes.string_at(0)
in_the_library()
"""


def test_a_crash_in_a_library_says_where_it_was() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in ended.stderr
    assert "in in_the_library" in ended.stderr

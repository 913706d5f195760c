"""Runs a part that works in threads, from its start until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

import click

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.log import set_up


def run_until_stopped(
    name: str, what: str, work: Callable[[threading.Event], object], *, verbose: bool
) -> int:
    """Run `work` until SIGTERM or SIGINT sets its event; returns the exit code of the process.

    It is 0, 2 for a configuration that cannot be used, or 1 for any other error, which is logged
    with `what` the part is.
    """
    set_up(verbose=verbose)
    log = logging.getLogger(f"edgewake.{name}")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        work(stop)
    except ConfigError as error:
        click.echo(str(error), err=True)
        return 2
    except Exception as error:
        log.exception("%s ends: %s", what, error, extra={"event": "part.failed"})
        return 1
    return 0

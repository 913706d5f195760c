"""`edgewake analysis`: the continuous queries."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="analysis.toml",
)
@click.option("--verbose", is_flag=True, help="Log details, too.")
def analysis(config_file: Path, verbose: bool) -> None:
    """Run the continuous queries (Spark)."""
    import logging
    import os
    import random
    import signal
    import sys
    import threading

    from edgewake.cloud.analysis.config import AnalysisConfig
    from edgewake.cloud.analysis.run import SILENT_S, run
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.errors import ConfigError
    from edgewake.protocol.heartbeat import Heartbeat
    from edgewake.protocol.log import set_up

    set_up(verbose=verbose)
    log = logging.getLogger("edgewake.analysis")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    code = 0
    try:
        heartbeat = Heartbeat(SystemClock())
        heartbeat.allow(SILENT_S)
        run(
            load(AnalysisConfig, config_file),
            clock=SystemClock(),
            rng=random.Random(),
            stop=stop,
            heartbeat=heartbeat,
        )
    except ConfigError as error:
        click.echo(str(error), err=True)
        code = 2
    except Exception as error:
        log.exception("the analysis ends: %s", error, extra={"event": "part.failed"})
        code = 1
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # the gateway's threads would wait for a JVM that is gone

"""`edgewake analysis`: the continuous queries."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

import click

from edgewake.cloud.part_options import part_options


@click.command()
@part_options("analysis.toml")
def analysis(config_file: Path, verbose: bool) -> None:
    """Run the continuous queries (Spark)."""
    import logging
    import os
    import random

    from edgewake.cloud.analysis.config import AnalysisConfig
    from edgewake.cloud.analysis.run import SILENT_S, run
    from edgewake.cloud.thread_part import run_until_stopped
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.heartbeat import Heartbeat

    def work(stop: Event) -> None:
        heartbeat = Heartbeat(SystemClock())
        heartbeat.allow(SILENT_S)
        run(
            load(AnalysisConfig, config_file),
            clock=SystemClock(),
            rng=random.Random(),
            stop=stop,
            heartbeat=heartbeat,
        )

    code = run_until_stopped("analysis", "the analysis", work, verbose=verbose)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # the gateway's threads would wait for a JVM that is gone

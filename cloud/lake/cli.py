"""`edgewake lake`: readings, results and summaries into Parquet."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

import click

from edgewake.cloud.part_options import part_options


@click.command()
@part_options("lake.toml")
def lake(config_file: Path, verbose: bool) -> None:
    """Keep readings, results and summaries as Parquet, for SQL over more time than Kafka holds."""
    import logging
    import random

    from edgewake.cloud import metrics_port
    from edgewake.cloud.lake.config import LakeConfig
    from edgewake.cloud.lake.writer import Writer
    from edgewake.cloud.part_words import PartWords
    from edgewake.cloud.thread_part import run_until_stopped
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.heartbeat import Heartbeat

    def work(stop: Event) -> None:
        config = load(LakeConfig, config_file)
        heartbeat = Heartbeat(SystemClock())
        writer = Writer(
            config, clock=SystemClock(), rng=random.Random(), stop=stop, on_turn=heartbeat.beat
        )
        metrics_port.serve(
            config.metrics_port,
            lambda: [*writer.metrics.gather(), *writer.health.gather()],
            part="lake",
            certificates=config.kafka.security.certificates,
            host=config.metrics_host,
            is_alive=heartbeat.is_alive,
            why_not_ready=writer.health.why_not_ready,
        )
        log = logging.getLogger("edgewake.lake")
        log.info("the lake is in %s", config.data_dir, extra={"event": "part.ready"})
        heartbeat.ready()
        words = PartWords(
            config.kafka,
            "lake",
            "lake",
            SystemClock(),
            why_not_ready=writer.health.why_not_ready,
            is_alive=heartbeat.is_alive,
        )
        with words.beside():
            writer.run()

    sys.exit(run_until_stopped("lake", "the lake's writer", work, verbose=verbose))

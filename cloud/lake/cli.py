"""`edgewake lake`: readings, results and summaries into Parquet."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="lake.toml",
)
@click.option("--verbose", is_flag=True, help="Log details, too.")
def lake(config_file: Path, verbose: bool) -> None:
    """Keep readings, results and summaries as Parquet, for SQL over more time than Kafka holds."""
    import logging
    import random
    import signal
    import sys
    import threading

    from edgewake.cloud import metrics_port
    from edgewake.cloud.lake.config import LakeConfig
    from edgewake.cloud.lake.writer import Writer
    from edgewake.cloud.process_metrics import of_kafka
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.errors import ConfigError
    from edgewake.protocol.heartbeat import Heartbeat
    from edgewake.protocol.log import set_up

    set_up(verbose=verbose)
    log = logging.getLogger("edgewake.lake")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = load(LakeConfig, config_file)
        heartbeat = Heartbeat(SystemClock())
        writer = Writer(
            config, clock=SystemClock(), rng=random.Random(), stop=stop, on_turn=heartbeat.beat
        )
        metrics_port.serve(
            config.metrics_port,
            lambda: [*writer.metrics.gather(), *writer.health.gather()],
            part="lake",
            certificates=of_kafka(config.kafka.security),
            host=config.metrics_host,
            is_alive=heartbeat.is_alive,
            why_not_ready=writer.health.why_not_ready,
        )
        log.info("the lake is in %s", config.data_dir, extra={"event": "part.ready"})
        heartbeat.ready()
        writer.run()
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except Exception as error:
        log.exception("the lake's writer ends: %s", error, extra={"event": "part.failed"})
        sys.exit(1)

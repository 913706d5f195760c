"""`edgewake sequencer`: each frame once and in order."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="sequencer.toml",
)
@click.option("--verbose", is_flag=True, help="Log details, too.")
def sequencer(config_file: Path, verbose: bool) -> None:
    """Put what the bridges accepted in order, each frame once, for everybody who reads."""
    import gc
    import logging
    import random
    import signal
    import sys
    import threading

    from edgewake.cloud import metrics_port
    from edgewake.cloud.process_metrics import of_kafka
    from edgewake.cloud.sequencer.config import SequencerConfig
    from edgewake.cloud.sequencer.sequencer import Sequencer
    from edgewake.cloud.traces.tracer import close, gathered
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.errors import ConfigError
    from edgewake.protocol.heartbeat import Heartbeat
    from edgewake.protocol.log import set_up

    set_up(verbose=verbose)
    log = logging.getLogger("edgewake.sequencer")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = load(SequencerConfig, config_file)
        heartbeat = Heartbeat(SystemClock())
        part = Sequencer(
            config, clock=SystemClock(), rng=random.Random(), stop=stop, on_turn=heartbeat.beat
        )
        metrics_port.serve(
            config.metrics_port,
            lambda: [*part.metrics.gather(), *gathered(part.tracer)],
            part="sequencer",
            certificates=of_kafka(config.kafka.security),
            host=config.metrics_host,
            is_alive=heartbeat.is_alive,
            why_not_ready=part.why_not_ready,
        )
        # A batch is thousands of containers and no cycle, and states are no Python objects: looking
        # through them costs a third of all time.
        gc.freeze()
        gc.set_threshold(100_000)
        part.run()
        close(part.tracer)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except Exception as error:
        log.exception("the sequencer ends: %s", error, extra={"event": "part.failed"})
        sys.exit(1)

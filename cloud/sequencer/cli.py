"""`edgewake sequencer`: each frame once and in order."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

import click

from edgewake.cloud.part_options import part_options


@click.command()
@part_options("sequencer.toml")
def sequencer(config_file: Path, verbose: bool) -> None:
    """Put what the bridges accepted in order, each frame once, for everybody who reads."""
    import gc
    import random

    from edgewake.cloud import metrics_port
    from edgewake.cloud.part_words import PartWords
    from edgewake.cloud.sequencer.config import SequencerConfig
    from edgewake.cloud.sequencer.sequencer import Sequencer
    from edgewake.cloud.thread_part import run_until_stopped
    from edgewake.cloud.traces.tracer import close, gathered
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.heartbeat import Heartbeat

    def work(stop: Event) -> None:
        config = load(SequencerConfig, config_file)
        heartbeat = Heartbeat(SystemClock())
        part = Sequencer(
            config, clock=SystemClock(), rng=random.Random(), stop=stop, on_turn=heartbeat.beat
        )
        metrics_port.serve(
            config.metrics_port,
            lambda: [*part.metrics.gather(), *gathered(part.tracer)],
            part="sequencer",
            certificates=config.kafka.security.certificates,
            host=config.metrics_host,
            is_alive=heartbeat.is_alive,
            why_not_ready=part.why_not_ready,
        )
        # A batch is thousands of containers and no cycle, and states are no Python objects: looking
        # through them costs a third of all time.
        gc.freeze()
        gc.set_threshold(100_000)
        words = PartWords(
            config.kafka,
            "sequencer",
            config.name,
            SystemClock(),
            why_not_ready=part.why_not_ready,
            is_alive=heartbeat.is_alive,
        )
        with words.beside():
            part.run()
        close(part.tracer)

    sys.exit(run_until_stopped("sequencer", "the sequencer", work, verbose=verbose))

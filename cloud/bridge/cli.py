"""`edgewake bridge`: MQTT to Kafka, with an acknowledgement to the device."""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.cloud.part_options import part_options


@click.command()
@part_options("bridge.toml")
def bridge(config_file: Path, verbose: bool) -> None:
    """Carry messages from the MQTT broker to Kafka and answer the devices."""
    import asyncio
    import gc
    import logging
    import random
    import signal
    import sys

    import uvloop

    from edgewake.cloud.bridge.config import BridgeConfig
    from edgewake.cloud.bridge.service import run
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.config import load
    from edgewake.protocol.errors import ConfigError
    from edgewake.protocol.heartbeat import Heartbeat
    from edgewake.protocol.log import set_up

    set_up(verbose=verbose)
    log = logging.getLogger("edgewake.bridge")

    async def main(config: BridgeConfig) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        heartbeat = Heartbeat(SystemClock())
        await heartbeat.beside(
            run(
                config,
                clock=SystemClock(),
                rng=random.Random(),
                stop=stop,
                is_alive=heartbeat.is_alive,
            )
        )

    # A message in flight is some twenty containers and no cycle: looking through them all the time
    # finds nothing and costs 8 %.
    gc.freeze()
    gc.set_threshold(50_000)
    try:
        uvloop.run(main(load(BridgeConfig, config_file)))
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except (Exception, BaseExceptionGroup) as error:
        log.exception("the bridge ends: %s", _first(error), extra={"event": "part.failed"})
        sys.exit(1)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

"""`edgewake simulate`: worlds that send."""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.simulators.broker_option import address, broker_options


@click.group()
def simulate() -> None:
    """Simulated devices, and the town that they drive through."""


@simulate.command()
@click.option(
    "--vehicles",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="How many vehicles, car-01 and on.",
)
@broker_options
@click.option("--seed", default=1, show_default=True, help="The same seed is the same day.")
@click.option(
    "--interval",
    "interval_s",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 3600),
    help="Seconds between readings.",
)
@click.option(
    "--speedup",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 1000),
    help="Seconds of the town per second.",
)
@click.option("--prefix", default="", help="Text before each vehicle's name.")
@click.option("--verbose", is_flag=True, help="Log details, too.")
def fleet(
    vehicles: int,
    host: str | None,
    port: int | None,
    seed: int,
    interval_s: float,
    speedup: float,
    prefix: str,
    verbose: bool,
) -> None:
    """Vehicles that drive through a town and send their position over MQTT."""
    import random

    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.log import set_up
    from edgewake.protocol.names import is_device
    from edgewake.simulators.fleet import Fleet, FleetPlan
    from edgewake.simulators.plain_device import Broker
    from edgewake.simulators.run import until_stopped
    from edgewake.simulators.world import World

    if prefix and not is_device(prefix + "car-01"):
        raise click.BadParameter(
            "expected A-Z a-z 0-9 . _ -, a letter or digit first", param_hint="--prefix"
        )
    set_up(verbose=verbose)
    plan = FleetPlan(
        Broker(*address(host, port)), interval_s=interval_s, speedup=speedup, prefix=prefix
    )

    async def main() -> None:
        await Fleet(
            World(vehicles=vehicles, seed=seed), plan, clock=SystemClock(), rng=random.Random()
        ).run()

    until_stopped(main)


@simulate.command()
@broker_options
@click.option("--access", required=True, metavar="HOST:PORT", help="The access server to read at.")
@click.option("--ops", "ops_url", required=True, metavar="URL", help="The operations API.")
@click.option(
    "--key-file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of its key, which may register a query.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that says how it stands, written twice a second.",
)
@click.option("--verbose", is_flag=True, help="Log details, too.")
def ledger(
    host: str | None,
    port: int | None,
    access: str,
    ops_url: str,
    key_file: Path,
    out: Path,
    verbose: bool,
) -> None:
    """Devices whose readings are counted at the other end: lost, twice, wrong."""
    import random

    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.installation import key_of
    from edgewake.protocol.log import set_up
    from edgewake.simulators.plain_device import Broker
    from edgewake.simulators.run import until_stopped
    from edgewake.simulators.witness.witness import Witness, WitnessPlan

    access_host, _, access_port = access.rpartition(":")
    if not access_host or not access_port.isdigit():
        raise click.BadParameter("expected HOST:PORT", param_hint="--access")
    set_up(verbose=verbose)
    plan = WitnessPlan(
        Broker(*address(host, port)),
        (access_host, int(access_port)),
        ops_url.rstrip("/"),
        key_of(key_file),
        out,
    )

    async def main() -> None:
        await Witness(plan, clock=SystemClock(), rng=random.Random()).run()

    until_stopped(main)


@simulate.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; standard output where missing.",
)
def town(out: Path | None) -> None:
    """Write the town's map as GeoJSON: roads with name and class, river, parks, stations."""
    import orjson

    from edgewake.simulators.town import geojson
    from edgewake.simulators.town_maker import make

    data = orjson.dumps(geojson(make()), option=orjson.OPT_APPEND_NEWLINE)
    if out is None:
        click.echo(data, nl=False)
    else:
        out.write_bytes(data)

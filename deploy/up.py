"""`edgewake up`: the whole system on this machine, until Ctrl-C.

It goes from checks to the addresses to open.
"""

from __future__ import annotations

from pathlib import Path

import click

from edgewake.deploy.plan import ACCESS_SERVERS_MAX, SERVICES


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    help="Folder for all data.",
)
@click.option(
    "--port-base",
    type=click.IntRange(1024, 65_000),
    default=8700,
    show_default=True,
    help="First port; the page is on it.",
)
@click.option(
    "--for",
    "for_s",
    type=click.FloatRange(0.1, 1e8),
    metavar="SECONDS",
    help="Stop N seconds after everything is ready.",
)
@click.option("--no-simulators", is_flag=True, help="Start no simulated vehicles.")
@click.option(
    "--only",
    multiple=True,
    metavar="SERVICE",
    help=f"Start only this; may be repeated. One of {', '.join(SERVICES)}.",
)
@click.option(
    "--access-servers",
    type=click.IntRange(1, ACCESS_SERVERS_MAX),
    default=1,
    show_default=True,
    help="Number of access servers.",
)
@click.option(
    "--listen",
    default="",
    metavar="ADDRESS",
    help="Open broker, page and push to the local network on this address of this machine, with "
    "passwords and TLS; auto: the one by which it reaches others.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="With --listen: encrypt nothing. Who listens on the wire reads passwords.",
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    metavar="PRESET",
    help="Read devices that speak in their own words by this preset (`edgewake map presets`); may "
    "be repeated.",
)
@click.option(
    "--sparkplug",
    is_flag=True,
    help="Be the host application `edgewake` of nodes of Sparkplug B at this broker.",
)
@click.option(
    "--faults",
    is_flag=True,
    help="Let the page System kill and freeze parts and cut links, while a ledger counts what is "
    "lost, twice or wrong.",
)
def up(
    data: Path,
    port_base: int,
    for_s: float | None,
    no_simulators: bool,
    only: tuple[str, ...],
    access_servers: int,
    listen: str,
    plain: bool,
    presets: tuple[str, ...],
    sparkplug: bool,
    faults: bool,
) -> None:
    """Start the whole system on this machine, and restart what fails.

    Ctrl-C stops it; the next start goes on from the same data.
    """
    from edgewake.deploy.doctor import checks

    checks.libraries()
    from edgewake.deploy.plan import Plan, Ports
    from edgewake.deploy.start import main

    address = ""
    if plain and not listen:
        raise click.UsageError("--plain: expected --listen with it")
    if listen:
        from edgewake.deploy import network

        address = network.address(listen)
    plan = Plan(
        data=data.absolute(),
        ports=Ports(port_base),
        access_servers=access_servers,
        simulators=not no_simulators,
        only=frozenset(only),
        listen=address,
        plain=plain,
        presets=presets,
        sparkplug=sparkplug,
        faults=faults,
    )
    main(plan, for_s=for_s)

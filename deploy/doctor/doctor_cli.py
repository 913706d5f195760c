"""`edgewake doctor`: what is missing on this machine, and what does not answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from edgewake.deploy.doctor.doctor import Finding
    from edgewake.protocol.installation import Installation

SIGNS: Final = {"good": "✓", "warning": "!", "bad": "✗"}


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data folder; default: $EDGEWAKE_DATA, or data.",
)
@click.option(
    "--port-base",
    type=click.IntRange(1024, 65_000),
    default=8700,
    show_default=True,
    help="First port of `edgewake up`.",
)
@click.option(
    "--mqtt",
    metavar="HOST:PORT",
    envvar="EDGEWAKE_MQTT",
    help="MQTT broker; default: a running system's. [env: EDGEWAKE_MQTT]",
)
@click.option(
    "--kafka",
    metavar="HOST:PORT",
    help="Kafka without TLS and password; default: a running system's.",
)
@click.option(
    "--ops",
    "url",
    envvar="EDGEWAKE_OPS_URL",
    help="Address of the operations API; default: a running system's.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of its keys; default: a running system's.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Try the login of people, [login], of this configuration, at its provider; may be "
    "repeated. Default: those of a running system.",
)
@click.option(
    "--json/--table",
    "as_json",
    default=None,
    help="Default: lines for people on a terminal, JSON when piped.",
)
def doctor(
    data: Path | None,
    port_base: int,
    mqtt: str | None,
    kafka: str | None,
    url: str | None,
    key_file: Path | None,
    configs: tuple[Path, ...],
    as_json: bool | None,
) -> None:
    """Check this machine: libraries, Java, Mosquitto, jars, disk, clock, ports.

    Also asks the broker, Kafka and the servers that run, and the provider that people log in at.

    Exit code 1: something is bad. Warnings do not count.
    """
    import os
    import sys

    from edgewake.deploy.doctor import doctor as checks
    from edgewake.deploy.doctor import logins
    from edgewake.deploy.plan import Plan, Ports, ports_wanted
    from edgewake.protocol import installation

    data = data or Path(os.environ.get(installation.DATA_VARIABLE) or installation.DATA_DEFAULT)
    running = installation.find({installation.DATA_VARIABLE: str(data)})
    is_running = running != installation.Installation()
    services = _given(running, mqtt, kafka, url, key_file)
    wanted = ports_wanted(Plan(data=data, ports=Ports(port_base)))
    found = checks.examine(
        checks.of_machine(data, wanted, is_running=is_running) | checks.of_services(services)
    )
    found += logins.examine(configs or sorted((data / "config").glob("*.toml")))
    _print(found, as_json=not sys.stdout.isatty() if as_json is None else as_json)
    raise SystemExit(1 if any(finding.verdict is checks.Verdict.BAD for finding in found) else 0)


def _given(
    running: Installation,
    mqtt: str | None,
    kafka: str | None,
    url: str | None,
    key_file: Path | None,
) -> Installation:
    return replace(
        running,
        mqtt=mqtt or running.mqtt,
        kafka=kafka or running.kafka,
        ops=(url or running.ops).rstrip("/"),
        ops_key_file=str(key_file) if key_file else running.ops_key_file,
    )


def _print(found: list[Finding], *, as_json: bool) -> None:
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(finding) for finding in found], indent=1))
        return
    for finding in found:
        click.echo(f"{SIGNS[finding.verdict]} {finding.check}: {finding.detail}")

"""`edgewake agent`, also called `edgewake-agent`: run the agent, set it up, inspect it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from edgewake.edge.commands.config_file import CONFIG, exits, given, load_config
from edgewake.edge.commands.discover import discover
from edgewake.edge.commands.log import log_group
from edgewake.edge.commands.maps import map_group
from edgewake.edge.commands.requests import requests


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="edgewake")
@CONFIG
@click.option("--verbose", is_flag=True, help="Log details, too.")
@click.pass_context
def agent(context: click.Context, config_file: Path | None, verbose: bool) -> None:
    """Run the agent of this device: measure, keep, send until acknowledged."""
    context.obj = config_file
    if context.invoked_subcommand is None:
        _live(config_file, verbose)


agent.add_command(log_group)
agent.add_command(map_group)
agent.add_command(discover)
agent.add_command(requests)


@agent.command("run")
@CONFIG
@click.option("--verbose", is_flag=True, help="Log details, too.")
@click.pass_obj
def run(of_group: Path | None, config_file: Path | None, verbose: bool) -> None:
    """Run the agent, as without a command."""
    _live(config_file or of_group, verbose)


@exits
def _live(config_file: Path | None, verbose: bool) -> None:
    from edgewake.edge.life import begin
    from edgewake.protocol.log import set_up

    set_up(verbose=verbose)
    begin(given(config_file), verbose=verbose)


@agent.command("init")
@click.option(
    "--device", prompt="Name of this device (its MQTT client id)", help="The device's identity."
)
@click.option("--broker", help="Where readings go, host:port.")
@click.option(
    "--data-dir",
    help="Where the log is kept; default: /var/lib/edgewake for root, else beside FILE.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    help="A kind of source to begin with; may be repeated. Default: host_metrics.",
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    help="What your devices speak (`edgewake-agent map presets`); may be repeated.",
)
@click.option("--topic", default="", help="Another topic, such as home/{device}/{kind}: a map.")
@click.option(
    "--maps",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A map file, such as `discover --write` makes.",
)
@click.option(
    "--devices-broker",
    help="Where the devices of presets, topic and maps publish, host:port. Default: "
    "127.0.0.1:1883.",
)
@click.option("--zone", default="UTC", show_default=True, help="Of times without one.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The device's password at the MQTT broker is in it.",
)
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Who signed the broker's certificate, PEM; turns TLS on.",
)
@click.option(
    "--cert-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The device's own certificate, PEM.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The key of the certificate, PEM.",
)
@click.option("--claim", default="", help="A claim code (`edgewake devices claim`): asks for one.")
@click.option(
    "--server",
    default="",
    help="With --claim: the operations API, such as https://192.168.1.5:8702",
)
@click.option(
    "--fingerprint",
    default="",
    help="With --claim: SHA-256 of the installation's authority (`edgewake devices claim`).",
)
@click.option(
    "--certificate",
    is_flag=True,
    help="With --claim: a certificate in place of a password; its key is made here and stays here.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@exits
def init(file: Path, **said: Any) -> None:
    """Write a commented configuration to FILE; asks for what no flag says."""
    from edgewake.edge.commands.setting_up import Said, set_up

    set_up(file, Said(**said), ask=click.prompt, say=click.echo, may_ask=sys.stdin.isatty())
    click.echo(
        f"{file} is written. Next: edgewake-agent doctor --config {file}; edgewake-agent run "
        f"--config {file}"
    )


@agent.command("doctor")
@CONFIG
@click.pass_obj
@exits
def doctor(of_group: Path | None, config_file: Path | None) -> None:
    """Check what the agent needs: configuration, disk, clock, log, broker.

    Exits with 1 where something is wrong.
    """
    from edgewake.edge.commands.doctor import examine
    from edgewake.protocol.clock import SystemClock

    is_well = True
    for finding in examine(load_config(config_file or of_group), SystemClock()):
        click.echo(f"{'good' if finding.good else 'BAD ':<5} {finding.what}: {finding.said}")
        is_well = is_well and finding.good
    if not is_well:
        sys.exit(1)


@agent.command()
@CONFIG
@click.pass_obj
@click.option(
    "--json/--table",
    "as_json",
    default=False,
    help="One JSON object, for programs; default: a table.",
)
@exits
def status(of_group: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Show the agent: connection, backlog, losses. Works on a stopped one, too."""
    import orjson

    from edgewake.edge import status as status_file
    from edgewake.protocol.clock import SystemClock

    found = status_file.read(
        load_config(config_file or of_group).data_dir, now_ms=SystemClock().now_ms()
    )
    click.echo(
        orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
        if as_json
        else status_file.table(found)
    )


@agent.command("page")
@CONFIG
@click.pass_obj
@click.option(
    "--port",
    default=8098,
    show_default=True,
    type=click.IntRange(1, 65_535),
    help="Port on the loopback.",
)
@exits
def page(of_group: Path | None, config_file: Path | None, port: int) -> None:
    """Serve a read-only page of this agent, and its metrics at /metrics, until stopped."""
    from edgewake.edge.page.server import HOST, PageServer
    from edgewake.protocol.clock import SystemClock

    with PageServer(load_config(config_file or of_group).data_dir, port, SystemClock()) as server:
        click.echo(f"http://{HOST}:{port}/")
        server.serve_forever()


@agent.command()
@CONFIG
@click.pass_obj
@exits
def check(of_group: Path | None, config_file: Path | None) -> None:
    """Check the configuration and say what it means; exit 2 where it cannot be used."""
    config = load_config(config_file or of_group)
    sources = (
        ", ".join(f"{source.type} → {source.stream} ({source.mode})" for source in config.source)
        or "none"
    )
    chains = ", ".join(f"{chain.stream} → {chain.into}" for chain in config.chain) or "none"
    absences = ", ".join(f"{rule.stream} → {rule.into}" for rule in config.absence) or "none"
    sketches = (
        ", ".join(f"{sketch.stream} ({' '.join(sketch.kinds)})" for sketch in config.sketch)
        or "none"
    )
    actions = (
        ", ".join(f"{action.stream} → {action.type} {action.name}" for action in config.action)
        or "none"
    )
    click.echo(
        f"good: device {config.device}, broker {config.mqtt.host}:{config.mqtt.port}, log in "
        f"{config.data_dir}, "
        f"sources: {sources}, chains: {chains}, absences: {absences}, sketches: {sketches}, "
        f"actions: {actions}"
    )


def main() -> None:
    """The command `edgewake-agent`."""
    agent(prog_name="edgewake-agent")

"""The command `edgewake`: gathers the commands of installed parts, imported when called.

An EdgewakeError ends in one sentence on standard error: exit code 2 for a configuration that cannot
be used, 1 for the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from typing import Final

import click

GROUP: Final = "edgewake.commands"
HELP: Final = {
    "up": "Start the whole system on this machine.",
    "agent": "Run a device: sources, event log, uplink.",
    "tail": "Follow a stream or a query in the terminal.",
    "sleep": "Read what there is, sleep until more has come, read on.",
    "status": "Show how the whole system is.",
    "top": "Watch the whole system, until Ctrl + C.",
    "open": "Open the operations pages in a browser.",
    "alert": "Be told when something is wrong.",
    "board": "Keep boards in files.",
    "set": "Keep sets of devices that filters use.",
    "publication": "Give streams, a filter and fields a name.",
    "delivery": "Have every event of a stream sent to a webhook.",
    "query": "Register, check, list and remove continuous queries.",
    "sql": "Ask past and present by SQL.",
    "summary": "Show what a field of a stream held, with bounds.",
    "devices": "List, add, show, forget and erase devices.",
    "command": "Ask a device for a command.",
    "config": "Set a device's configuration, and see what it says of it.",
    "requests": "Show what devices ask for.",
    "reply": "Answer what a device asks.",
    "streams": "List streams and their fields, and erase them.",
    "dead-letters": "List refused messages, show them, give them back.",
    "clients": "List who reads now, and end one.",
    "leases": "List the leases of sleeping clients.",
    "ack": "Show how far an acknowledged frame came.",
    "send": "Send one reading of a device.",
    "map": "Try maps of devices' own words, give them to all bridges.",
    "discover": "List what speaks on a broker, and propose maps.",
    "logs": "Show what the parts log.",
    "login": "Print a link into the operations API.",
    "replay": "Send a recorded file as if it happened now.",
    "simulate": "Run a simulated fleet.",
    "bridge": "Take frames from MQTT into Kafka.",
    "sequencer": "Put each device's frames in order, each once.",
    "lake": "Keep readings, results and summaries as Parquet.",
    "analysis": "Run the continuous queries (Spark).",
    "access": "Serve streams and results over HTTP.",
    "push": "Hold leases of sleeping clients and wake them.",
    "ops": "Serve the operations API.",
    "doctor": "Check this machine and what runs on it.",
    "jars": "Fetch the Java libraries of Kafka and of Spark's connector.",
}
"""One line each, here so that `edgewake --help` imports no part; commands of others are listed by
the name of their package."""

OWN: Final = (
    metadata.EntryPoint("sleep", "edgewake.edge.client.sleep_cli:sleep", GROUP),
    metadata.EntryPoint("send", "edgewake.edge.client.send_cli:send", GROUP),
    metadata.EntryPoint("map", "edgewake.edge.commands.maps:map_group", GROUP),
    metadata.EntryPoint("discover", "edgewake.edge.commands.discover:discover", GROUP),
    metadata.EntryPoint("login", "edgewake.deploy.login_cli:login", GROUP),
    metadata.EntryPoint("status", "edgewake.cloud.commands.status:status", GROUP),
    metadata.EntryPoint("open", "edgewake.deploy.login_cli:open_pages", GROUP),
    metadata.EntryPoint("top", "edgewake.cloud.commands.top:top", GROUP),
    metadata.EntryPoint("clients", "edgewake.cloud.commands.clients:clients", GROUP),
    metadata.EntryPoint("board", "edgewake.cloud.commands.boards:board", GROUP),
    metadata.EntryPoint("set", "edgewake.cloud.commands.named:set_group", GROUP),
    metadata.EntryPoint("publication", "edgewake.cloud.commands.named:publication", GROUP),
    metadata.EntryPoint("alert", "edgewake.cloud.commands.alerts:alert", GROUP),
    metadata.EntryPoint("delivery", "edgewake.cloud.commands.deliveries:delivery", GROUP),
    metadata.EntryPoint("sql", "edgewake.cloud.commands.sql:sql", GROUP),
    metadata.EntryPoint("lake", "edgewake.cloud.lake.cli:lake", GROUP),
    metadata.EntryPoint("summary", "edgewake.cloud.commands.summary:summary", GROUP),
    *(
        metadata.EntryPoint(
            name, f"edgewake.cloud.commands.listings:{name.replace('-', '_')}", GROUP
        )
        for name in ("devices", "streams", "dead-letters", "leases", "ack")
    ),
    *(
        metadata.EntryPoint(name, f"edgewake.cloud.commands.device_commands:{name}", GROUP)
        for name in ("command", "config")
    ),
    *(
        metadata.EntryPoint(name, f"edgewake.cloud.commands.requests:{name}", GROUP)
        for name in ("requests", "reply")
    ),
    metadata.EntryPoint("doctor", "edgewake.deploy.doctor.doctor_cli:doctor", GROUP),
    metadata.EntryPoint("logs", "edgewake.deploy.parts.logs_cli:logs", GROUP),
    metadata.EntryPoint("jars", "edgewake.deploy.programs.jars_cli:jars", GROUP),
)
"""Commands of no part: they come with the command itself."""
ADDED: Final = {
    "map": tuple(
        metadata.EntryPoint(name, f"edgewake.cloud.commands.maps:{name}", GROUP)
        for name in ("push", "back", "show")
    )
}
"""Group → its commands that are of another part: parts never import each other."""
NEEDED: Final = {
    "edge": ("psutil", "sqlite_utils"),
    "client": ("aiomqtt", "httpx", "rich"),
    "cloud": ("confluent_kafka", "fastapi"),
    "analysis": ("pyspark",),
    "lake": ("duckdb", "pyarrow"),
    "simulators": ("rich",),
    "demo": ("confluent_kafka", "pyspark", "psutil"),
}
"""Extra → libraries by which it is known whether it is installed. A command of an extra that is not
is left out of the help."""
OURS: Final = ("edgewake", "cloud", "deploy", "edge", "protocol", "simulators")
"""First names of modules that are ours, also where one is asked for by the bare name of its folder:
no extra brings them."""
EXTRA_OF_FOLDER: Final = {
    ("edge", "client"): "client",
    ("cloud", "commands"): "client",
    ("cloud", "analysis"): "analysis",
    ("cloud", "lake"): "lake",
}
"""Folders whose commands need other libraries than the rest of their package."""
ALWAYS: Final = ("login", "logs", "open")
"""Commands that need nothing but what every installation has."""


class Parts(click.Group):
    """A group whose commands are entry points."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        known = list(HELP)
        return sorted(
            _entry_points(),
            key=lambda name: (known.index(name) if name in HELP else len(known), name),
        )

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _entry_points().get(cmd_name)
        return None if entry is None else _load(entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # Its own suggestions are of commands that are loaded, and none is yet.
            raise click.NoSuchCommand(
                args[0], possibilities=self.list_commands(ctx), ctx=ctx
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        entries = _entry_points()
        names = self.list_commands(ctx)
        shown = [name for name in names if is_installed(entries[name])]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, HELP.get(name) or f"From {_package_of(entries[name].value)}.")
                    for name in shown
                ]
            )
        if missing := sorted(
            {_extra_of(entries[name].value) for name in names if name not in shown}
        ):
            formatter.write_paragraph()
            formatter.write_text(
                f"More commands come with: {', '.join(f'edgewake[{extra}]' for extra in missing)}"
            )


def _entry_points() -> Mapping[str, metadata.EntryPoint]:
    return {entry.name: entry for entry in (*OWN, *metadata.entry_points(group=GROUP))}


def is_installed(entry: metadata.EntryPoint) -> bool:
    """Are the libraries there that the command needs?"""
    libraries = () if entry.name in ALWAYS else NEEDED.get(_extra_of(entry.value), ())
    return all(find_spec(library) is not None for library in libraries)


def _load(entry: metadata.EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        raise click.ClickException(missing_library(entry, error)) from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{entry.value} is not a command")
    if isinstance(command, click.Group):
        for added in filter(is_installed, ADDED.get(entry.name, ())):
            command.add_command(_load(added), added.name)
    return command


def missing_library(entry: metadata.EntryPoint, error: ModuleNotFoundError) -> str:
    """Name what to install; a missing module of our own is named, since no extra brings it."""
    if _is_ours(error):
        return (
            f"edgewake {entry.name} cannot run: no module {error.name} of Edgewake's own; install "
            "edgewake again, or report it"
        )
    extra = _extra_of(entry.value)
    return (
        f"edgewake {entry.name} needs more libraries: pip install 'edgewake[{extra}]' (no module "
        f"{error.name})"
    )


def _is_ours(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] in OURS


def _extra_of(value: str) -> str:
    package = _package_of(value)
    if package in ("edge", "cloud"):
        folder = value.split(".")[2]
        return EXTRA_OF_FOLDER.get((package, folder), package)
    return {"deploy": "demo"}.get(package, package)


def _package_of(value: str) -> str:
    """`cloud` of `edgewake.cloud.ops.cli:ops`; for commands of others the name of their package."""
    first, _, rest = value.partition(":")[0].partition(".")
    return rest.partition(".")[0] if first == "edgewake" else first


@click.group(
    cls=Parts, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(package_name="edgewake", prog_name="edgewake")
def edgewake() -> None:
    """Carries measurements from devices at the edge to people and programs that may be asleep."""


def main() -> None:
    """The entry point of the script `edgewake`."""
    from edgewake.protocol.errors import ConfigError, EdgewakeError

    # The command line of httpx is nobody's need here, and loading it with its colours takes a third
    # of httpx's import.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    try:
        edgewake.main(prog_name="edgewake")
    except EdgewakeError as error:
        click.echo(f"edgewake: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except ModuleNotFoundError as error:
        sys.exit(_missing_late(error))


def _missing_late(error: ModuleNotFoundError) -> int:
    """A part's heavy libraries are imported inside its command, so they are missed only there."""
    entry = _entry_points().get(
        next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    )
    if entry is None:
        raise error
    click.echo(f"edgewake: {missing_library(entry, error)}", err=True)
    return 1


if __name__ == "__main__":
    main()

"""`edgewake agent log`: show, verify, export, count and copy what the device's log holds.

Reads only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edgewake.edge.commands.config_file import CONFIG, data_dir_of, exits

_FAULTY = 3
"""Exit code of `verify` where the log is not sound."""


@click.group("log", invoke_without_command=True)
@CONFIG
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Frames and batches to show.",
)
@click.pass_context
def log_group(context: click.Context, config_file: Path | None, limit: int) -> None:
    """Show frames and batches that wait in the log, oldest first, one JSON object a line.

    A subcommand shows other parts of the log.
    """
    context.obj = config_file or context.obj
    if context.invoked_subcommand is None:
        _show(context.obj, limit)


@log_group.command("show")
@CONFIG
@click.pass_obj
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Frames and batches to show.",
)
def show(of_group: Path | None, config_file: Path | None, limit: int) -> None:
    """Frames and batches that wait, oldest first."""
    _show(config_file or of_group, limit)


@exits
def _show(config_file: Path | None, limit: int) -> None:
    from edgewake.edge.log.tables.view import rows

    for row in rows(data_dir_of(config_file), limit):
        click.echo(row)


@log_group.command("verify")
@CONFIG
@click.pass_obj
@exits
def verify(of_group: Path | None, config_file: Path | None) -> None:
    """Check every page, row and checksum; exit 3 where one is wrong."""
    from edgewake.edge.log.damage.audit import verify as verified

    verdict = verified(data_dir_of(config_file or of_group))
    click.echo(
        f"{verdict.readings} readings in {verdict.batches} batches, {verdict.frames} frames "
        f"formed: {verdict.fault_count} faults"
    )
    for fault in verdict.faults:
        click.echo(f"  {fault}")
    if verdict.fault_count:
        click.echo("the agent repairs what it can when it starts, and reports the rest as a gap")
        sys.exit(_FAULTY)


@log_group.command("stats")
@CONFIG
@click.pass_obj
@exits
def stats(of_group: Path | None, config_file: Path | None) -> None:
    """Per stream what is kept, one JSON object a line."""
    from edgewake.edge.log.damage.audit import as_line
    from edgewake.edge.log.damage.audit import stats as counted

    for row in counted(data_dir_of(config_file or of_group)):
        click.echo(as_line(row))


@log_group.command("export")
@CONFIG
@click.option("--stream", default=None, help="This stream only.")
@click.pass_obj
@exits
def export(of_group: Path | None, config_file: Path | None, stream: str | None) -> None:
    """Every reading that is in the log, one JSON object a line."""
    from edgewake.edge.log.damage.audit import as_line
    from edgewake.edge.log.damage.audit import export as exported

    for row in exported(data_dir_of(config_file or of_group), stream):
        click.echo(as_line(row))


@log_group.command("backup")
@CONFIG
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
@exits
def backup(of_group: Path | None, config_file: Path | None, file: Path) -> None:
    """Copy the log to FILE while the agent goes on."""
    from edgewake.edge.log.damage.audit import backup as copied

    click.echo(f"{file}: {copied(data_dir_of(config_file or of_group), file)} bytes")

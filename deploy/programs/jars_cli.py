"""`edgewake jars`: fetches the jars of Spark and Kafka where no `edgewake up` does."""

from __future__ import annotations

from pathlib import Path

import click

SETS = ("kafka", "spark")


@click.group()
def jars() -> None:
    """Fetch the Java libraries of Kafka and of Spark's connector."""


@jars.command()
@click.argument("name", metavar="SET", type=click.Choice(SETS))
@click.option(
    "--link",
    type=click.Path(path_type=Path),
    help="Make this a symbolic link to the folder, e.g. for jars_dir in analysis.toml.",
)
def fetch(name: str, link: Path | None) -> None:
    """Fetch the jars of SET (kafka or spark), check their locked hashes, and print their folder.

    EDGEWAKE_CACHE names the folder that holds them, EDGEWAKE_MAVEN the address of a mirror.
    """
    from edgewake.deploy.programs import jars as cache
    from edgewake.deploy.progress import Steps
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.errors import LocalError

    with Steps(SystemClock()) as steps, steps.step(f"the jars of {name}") as step:
        folder = cache.ensure(name, progress=step.update)
    if link is not None:
        try:
            _point(link, folder)
        except OSError as error:
            raise LocalError(f"{link}: {error.strerror}") from error
    click.echo(folder)


def _point(link: Path, folder: Path) -> None:
    """By one rename, so that a reader finds the old folder or the new one."""
    new = link.with_name(link.name + ".new")
    new.unlink(missing_ok=True)
    new.symlink_to(folder)
    new.replace(link)

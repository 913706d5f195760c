"""`python -m edgewake.deploy.audit`: advisories, licences, and bill of materials of a checkout.

Exit code 0: all was looked at and is well. 1: something is not. 3: nothing is wrong, but nobody
could be asked about advisories.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

import click

from edgewake.deploy.audit import accepted, advisories, bill, licences, locked
from edgewake.deploy.programs import jars
from edgewake.protocol.errors import EdgewakeError

OSV: Final = "https://api.osv.dev"
SHOWN_MAX: Final = 3
"""Components of one reason that are named; the others are counted."""
WRONG, NOT_ASKED = 1, 3


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The checkout.",
)
@click.option(
    "--bill",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("build/edgewake.cdx.json"),
    show_default=True,
)
@click.option(
    "--offline", is_flag=True, help="Do not look advisories up, and do not call that a failure."
)
def main(root: Path, file: Path, offline: bool) -> None:
    """Look at all that is locked."""
    try:
        sys.exit(audit(root, file, offline=offline))
    except EdgewakeError as error:
        click.echo(f"audit: {error}", err=True)
        sys.exit(WRONG)


def audit(root: Path, file: Path, *, offline: bool) -> int:
    """The exit code.

    Raises EdgewakeError where a lock or accepted.toml cannot be read, or the jars are not there.
    """
    components, known = locked.all_of(root), accepted.read()
    here = {
        path.name: path for name in jars.read_lock() for path in jars.ensure(name).glob("*.jar")
    }
    installed = licences.installed_here()
    found = {one: licences.of(one, installed, here) for one in components}
    overruled = {entry.component: entry.licence for entry in known.licence}
    judged = [(one, licences.judge(text, one, known)) for one, text in found.items()]
    wrong = [f"{one.key} {one.version} {why}" for one, why in judged if why]
    click.echo(f"licences: {len(found) - len(wrong)} of {len(found)} components are accepted")
    file.parent.mkdir(parents=True, exist_ok=True)
    told_licences = {one: overruled.get(one.key, text) for one, text in found.items()}
    file.write_text(bill.bill_of(components, told_licences, metadata.version("edgewake")), "utf-8")
    click.echo(f"bill of materials: {file}, CycloneDX 1.6, {len(components)} components")
    if offline:
        click.echo("advisories: NOT LOOKED AT, as --offline says")
    else:
        told = advisories.ask(components, os.environ.get("EDGEWAKE_OSV", OSV))
        wrong += advisories.judge(told, known, datetime.now(UTC).date())
        _say_asked(told, len(components))
        if told.not_asked and not wrong:
            return NOT_ASKED
    for sentence in wrong:
        click.echo(f"WRONG: {sentence}", err=True)
    return WRONG if wrong else 0


def _say_asked(told: advisories.Told, count: int) -> None:
    click.echo(
        f"advisories: asked about {count - len(told.not_asked)} of {count} components, "
        f"{len(told.warned)} advisories"
    )
    reasons = defaultdict(list)
    for component, why in told.not_asked.items():
        reasons[why.replace(component.partition(":")[2], "…").partition(" (")[0]].append(component)
    for why, components in reasons.items():
        names = ", ".join(components[:SHOWN_MAX]) + (
            f" and {len(components) - SHOWN_MAX} more" if len(components) > SHOWN_MAX else ""
        )
        click.echo(f"advisories: NOT LOOKED AT for {names}: {why}", err=True)


if __name__ == "__main__":
    main()

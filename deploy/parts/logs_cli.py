"""`edgewake logs`: what the parts of a system say, in one stream of lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from edgewake.deploy.parts.log_reader import LEVELS, Line, Tail, newest, parts_in
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.installation import DATA_DEFAULT, DATA_VARIABLE
from edgewake.protocol.printable import printable

LINES_DEFAULT: Final = 50
LOOK_EVERY_S: Final = 0.3
"""Between two looks at the files with --follow."""
COLOURS: Final = {
    "debug": "bright_black",
    "info": "green",
    "warning": "yellow",
    "error": "red",
    "critical": "bright_red",
}


@click.command()
@click.argument("parts", nargs=-1, metavar="[PART]...")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    envvar=DATA_VARIABLE,
    default=DATA_DEFAULT,
    show_default=True,
    help="Data folder of `edgewake up`.",
)
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0),
    default=LINES_DEFAULT,
    show_default=True,
    help="How many of the last lines.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Lines of this severity or more.",
)
@click.option(
    "--follow", "-f", is_flag=True, help="Go on with what is written from now on; Ctrl-C ends it."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def logs(
    parts: Sequence[str], data: Path, lines: int, level: str, follow: bool, as_json: bool
) -> None:
    """Show what the parts of `edgewake up` log, in the order of their times.

    Without PART those of all parts. Kafka and Mosquitto write plain text: it passes every level up
    to info.
    """
    folder = data / "logs"
    write = _write_json if as_json else _write_text
    try:
        tails = [Tail(folder / f"{part}.log") for part in _known(parts, folder)]
        _print(newest(tails, lines, level), write)
        while follow:
            time.sleep(LOOK_EVERY_S)
            found = [line for tail in tails for line in tail.more() if line.is_at_least(level)]
            _print(sorted(found, key=lambda line: line.time_ms), write)
    except KeyboardInterrupt:
        return
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder}: {error.strerror}; --data names the data folder of "
            "`edgewake up`"
        ) from error


def _known(parts: Sequence[str], folder: Path) -> Sequence[str]:
    """The parts asked for, or all. Raises ConfigError for one that has no log, OSError."""
    there = parts_in(folder)
    for part in parts:
        if part not in there:
            raise ConfigError(
                f"{part} has no log in {folder}; there are: {', '.join(there) or 'none'}"
            )
    return list(dict.fromkeys(parts)) or there


def _print(lines: Iterable[Line], write: Callable[[Line], None]) -> None:
    for line in lines:
        write(line)


def _write_text(line: Line) -> None:
    clock = (
        time.strftime("%H:%M:%S", time.localtime(line.time_ms / 1000))
        if line.time_ms
        else "--:--:--"
    )
    level = click.style(f"{line.level:<8}", fg=COLOURS.get(line.level))
    extras = " ".join(
        f"{name}={value}"
        for name, value in line.extras.items()
        if name not in ("event", "exception")
    )
    text = (
        f"{click.style(clock, dim=True)} {level} {line.part}: {printable(click.unstyle(line.text))}"
    )
    text += f" {click.style(printable(extras), dim=True)}" if extras else ""
    text += (
        printable(f"\n{line.extras['exception']}", keep="\n") if "exception" in line.extras else ""
    )
    click.echo(text)


def _write_json(line: Line) -> None:
    import json

    about = {
        "time": line.time_ms,
        "level": line.level or None,
        "part": line.part,
        "text": line.text,
    }
    click.echo(json.dumps({**line.extras, **about}))

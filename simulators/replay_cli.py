"""`edgewake replay`: a recorded file as if its devices were alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgewake.simulators.broker_option import address, broker_options

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from edgewake.simulators.player import PlayPlan, Summary
    from edgewake.simulators.recordings.look import Look
    from edgewake.simulators.recordings.readings import Columns, Odd, Reading
    from edgewake.simulators.recordings.rows import BadRow, FileFormat, Tally


def _speed(_context: click.Context, _option: click.Parameter, value: str) -> float | None:
    if value == "max":
        return None
    try:
        speed = float(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a number or max") from error
    if not 0 < speed <= 1e6:
        raise click.BadParameter(f"{value}: expected more than 0, at most 1000000, or max")
    return speed


EXAMPLES = """\b
edgewake replay drive.csv.gz --time-field 'ENGINE_RUN_TINE ()' --time-format s
edgewake replay positions.jsonl --device-field icao24 --sort --speed 60
edgewake replay power.txt --time-field Date,Time --time-format '%d/%m/%Y %H:%M:%S' \\
  --zone Europe/Paris --times recorded --speed max"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--stream", help="Stream to send to; default: the file's name.")
@click.option(
    "--device", help="Device that sends, where no column names it; default: the file's name."
)
@click.option("--device-field", metavar="F", help="Column that names the device.")
@click.option(
    "--time-field",
    metavar="F[,F]",
    help=(
        "Column of the event time, or two that are joined (Date,Time); default: guessed; - for "
        "none."
    ),
)
@click.option(
    "--time-format",
    default="auto",
    show_default=True,
    help="auto, s, ms, us, ns, iso, or a pattern such as '%d/%m/%Y %H:%M:%S'.",
)
@click.option(
    "--zone",
    default="UTC",
    show_default=True,
    help="Time zone of times that do not say theirs, e.g. Europe/Dublin.",
)
@click.option(
    "--every",
    "every_s",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.001),
    help="Seconds between rows without a time.",
)
@click.option(
    "--columns", metavar="A,B,…", help="Names of the columns where the file has no header line."
)
@click.option(
    "--format",
    "file_format",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "csv", "tsv", "jsonl", "json", "nmea"]),
)
@click.option(
    "--speed",
    default="1",
    show_default=True,
    callback=_speed,
    help="1 as recorded, 10 ten times faster, or max (in frames of up to 100 readings).",
)
@click.option(
    "--times",
    default="now",
    show_default=True,
    type=click.Choice(["recorded", "now"]),
    help="Keep event times, or move the first to now.",
)
@click.option("--sort", "in_order", is_flag=True, help="Sort the rows by time first (in memory).")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many rows.")
@click.option(
    "--patience",
    "patience_s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds without an acknowledgement before it gives up.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 512),
    help="Messages of one device on their way at once; default: 1, at full speed 64. With more "
    "than 1 two bridges may swap neighbours.",
)
@click.option("--look", "only_look", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option("--yes", "-y", is_flag=True, help="Send it without a question, guesses too.")
@broker_options
def replay(
    file: Path, stream: str | None, device: str | None, device_field: str | None,
    time_field: str | None, time_format: str, zone: str,
    every_s: float, columns: str | None, file_format: str, speed: float | None, times: str,
    in_order: bool, limit: int | None,
    patience_s: float, in_flight: int | None, only_look: bool, yes: bool,
    host: str | None, port: int | None,
) -> None:  # fmt: skip
    """Send a recorded FILE as plain MQTT readings, and wait until the cloud has them all.

    FILE is CSV, TSV or a table with blanks, JSON lines or an array, Zeek's logs, or NMEA 0183, also
    .gz.

    It looks first, and says as a table what the columns, the time and the devices are taken for. On
    a terminal it asks before it sends; elsewhere it refuses where it had to guess, unless --yes.
    Exit codes: 0 all is there; 1 not all was acknowledged; 2 nothing was sent; 3 all that could be
    read is there, and not all could be read.
    """
    from edgewake.protocol.log import set_up
    from edgewake.simulators.recordings.readings import Columns, legal_device, legal_stream
    from edgewake.simulators.recordings.rows import FileFormat, UnreadableFile, detect

    name = file.name.split(".")[0]
    set_up()
    to_stream = legal_stream(stream or name)
    names = columns.split(",") if columns else None
    try:
        kind = detect(file) if file_format == "auto" else FileFormat(file_format)
        meaning = Columns(
            legal_device(device or name), device_field, (), time_format, _zone(zone), every_s
        )
        found = _look(
            file, kind, names, _names_of(time_field), meaning, to_stream, times == "recorded"
        )
    except (UnreadableFile, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if only_look:
        return
    _agree(found, yes)
    recording = Recording(file, kind, names, found.meaning, in_order, limit)
    pace = Speed(speed, times == "now", patience_s, in_flight)
    raise SystemExit(_play(recording, pace, to_stream, address(host, port)))


NOTHING_SENT = 2
NOT_ALL = 1
NOT_ALL_READ = 3


@dataclass(frozen=True)
class Recording:
    """A recording to send."""

    file: Path
    kind: FileFormat
    names: Sequence[str] | None
    meaning: Columns
    in_order: bool
    limit: int | None


@dataclass(frozen=True)
class Speed:
    """How it is sent; see the options."""

    speed: float | None
    move_to_now: bool
    patience_s: float
    in_flight: int | None


def _names_of(time_field: str | None) -> Sequence[str] | None:
    if time_field is None:
        return None
    return [] if time_field == "-" else time_field.split(",")


def _look(
    file: Path, kind: FileFormat, names: Sequence[str] | None,
    time_fields: Sequence[str] | None, meaning: Columns, stream: str, keeps_times: bool,
) -> Look:  # fmt: skip
    """Look, and show what was found; ends where it cannot be sent at all."""
    from rich.console import Console

    from edgewake.simulators.recordings.look import look, refusal
    from edgewake.simulators.recordings.look_table import show

    found = look(file, kind, names, time_fields, meaning)
    show(found, stream, Console(stderr=True))
    why_not = refusal(found, keeps_times=keeps_times)
    if why_not is not None:
        click.echo(f"nothing was sent: {why_not}", err=True)
        raise SystemExit(NOTHING_SENT)
    return found


def _agree(found: Look, yes: bool) -> None:
    """Ask a person; refuse a program that let something be guessed."""
    import sys

    if yes:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm("send it so?", default=not found.guesses, abort=True, err=True)
        return
    if found.guesses:
        click.echo("nothing was sent: use the options above, or --yes for the guesses", err=True)
        raise SystemExit(NOTHING_SENT)


def _play(recording: Recording, speed: Speed, stream: str, broker: tuple[str, int]) -> int:
    """Send it; the exit code."""
    import random

    from edgewake.protocol.clock import SystemClock
    from edgewake.simulators.late_report import LateReport, asker
    from edgewake.simulators.plain_device import Broker
    from edgewake.simulators.player import IN_FLIGHT_AT_FULL_SPEED, Player, PlayPlan
    from edgewake.simulators.recordings.readings import Odd, Pace
    from edgewake.simulators.recordings.rows import Tally, UnreadableFile
    from edgewake.simulators.run import until_stopped

    tally, odd = Tally(), Odd()
    clock = SystemClock()
    plan = PlayPlan(
        Broker(*broker),
        stream,
        speed.patience_s,
        speed.in_flight or (IN_FLIGHT_AT_FULL_SPEED if speed.speed is None else 1),
        in_frames=speed.speed is None,
    )
    try:
        readings = _readings(recording, tally, odd)
        player = Player(
            plan, client_id=f"replay-{random.getrandbits(32):08x}", clock=clock, rng=random.Random()
        )
        pace = Pace(speed=speed.speed, move_to_now=speed.move_to_now, start_ms=clock.now_ms())
        report = LateReport(plan.stream, asker())
        report.begin()
        with _progress(recording.file, recording.limit) as on_row:
            ended = until_stopped(lambda: player.play(readings, pace, on_row))
    except (UnreadableFile, ValueError) as error:
        raise click.ClickException(str(error)) from error
    _print_summary(player.summary, tally, odd, plan)
    if ended and player.summary.acked:
        for line in report.end():
            click.echo(f"  {line}")
    if not (ended and player.summary.complete):
        return NOT_ALL
    return NOT_ALL_READ if player.summary.bad_rows or tally.bad_values else 0


def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"--zone {name!r}: expected a name such as Europe/Dublin") from error


def _readings(recording: Recording, tally: Tally, odd: Odd) -> Iterator[Reading | BadRow]:
    from itertools import islice

    from edgewake.simulators.recordings import rows
    from edgewake.simulators.recordings.readings import sorted_by_time, to_readings

    found = rows.rows(recording.file, recording.kind, tally, columns=recording.names)
    readings = to_readings(islice(found, recording.limit), recording.meaning, odd)
    return sorted_by_time(readings) if recording.in_order else readings


@contextmanager
def _progress(file: Path, limit: int | None) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, nothing elsewhere."""
    import sys

    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from edgewake.simulators.recordings.rows import lines

    total = min(sum(1 for _ in lines(file)), limit or sys.maxsize)
    bar = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*bar, console=Console(stderr=True)) as progress:
        task = progress.add_task(file.name, total=total)
        yield lambda: progress.advance(task)


def _print_summary(summary: Summary, tally: Tally, odd: Odd, plan: PlayPlan) -> None:
    devices = f"{summary.devices} device{'' if summary.devices == 1 else 's'}"
    click.echo(
        f"stream {plan.stream}, {devices}: sent {summary.sent}, acked {summary.acked}, rejected "
        f"{summary.rejected}, "
        f"unacked {summary.unacked}, bad rows {summary.bad_rows}, bad values {tally.bad_values}"
    )
    for bad in summary.first_bad:
        click.echo(f"  line {bad.line}: {bad.reason}", err=True)
    if summary.bad_rows > len(summary.first_bad):
        click.echo(f"  and {summary.bad_rows - len(summary.first_bad)} more bad rows", err=True)
    if tally.columns:
        click.echo(
            f"  values that are no numbers stand beside, as …_odd, of "
            f"{', '.join(sorted(tally.columns))}",
            err=True,
        )
    for name, made in odd.devices.items():
        click.echo(f"  device {name!r} would be called like another one: {made}", err=True)
    if odd.twice or odd.never:
        click.echo(
            f"  {odd.twice} times of the hour that the zone has twice, {odd.never} of the one that "
            "it leaves out",
            err=True,
        )
    if summary.rejected:
        click.echo(
            f"  the cloud refused {summary.rejected} and keeps them as dead letters; the last: "
            f"{summary.last_rejection}",
            err=True,
        )
    if summary.unacked:
        where = f"{plan.broker.host}:{plan.broker.port}"
        text = (
            f"nobody acknowledged {summary.unacked} for {plan.patience_s:g} s: does the broker at "
            f"{where} run, and a bridge?"
        )
        click.echo(f"  {text}", err=True)

"""`edgewake summary`: what a field of a stream held in some time, with bounds and confidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from edgewake.cloud.commands.common import completion
from edgewake.cloud.commands.common.api_client import OpsApi, api_options
from edgewake.cloud.commands.common.output import print_item, print_items, print_json
from edgewake.cloud.commands.common.times import TIME, time_ms

SERIES_COLUMNS: Final = ("stream", "field", "devices")
FIGURES: Final = ("readings", "count", "sum", "min", "max", "mean", "variance")


@click.command()
@click.argument("stream", required=False, shell_complete=completion.streams)
@click.argument("field", required=False)
@click.option(
    "--from", "since", callback=time_ms, help=f"Begin: {TIME}. Default: an hour before the end."
)
@click.option("--to", callback=time_ms, help="End, in the same way. Default: now.")
@click.option(
    "--step",
    type=click.Choice(["minute", "hour", "day"]),
    help="A row for each; without it one row of the whole time.",
)
@click.option(
    "--devices",
    default="",
    help="A declared set of devices, or @DEVICE: the sketches that it sends beside its readings; "
    "default: all.",
)
@click.option("--distinct", is_flag=True, help="How many different values.")
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1),
    multiple=True,
    help="The value at this rank, e.g. 0.99; several times.",
)
@click.option("--between", type=(float, float), help="Readings from LOW to before HIGH.")
@click.option("--frequent", type=click.IntRange(1, 100), help="The N most frequent values.")
@click.option("--count-of", multiple=True, help="How often this value occurred; several times.")
@click.option(
    "--contains",
    multiple=True,
    help="Whether this value occurred: yes, no, or why nobody can say; several times.",
)
@click.option(
    "--sample", type=click.IntRange(1, 64), help="So many readings, each as likely as any other."
)
@click.option("--with-stream", help="Compare with this stream: which values both have in common.")
@click.option("--with-field", help="Compare with this field.")
@click.option("--with-from", callback=time_ms, help="Compare with the time from here.")
@click.option("--with-to", callback=time_ms, help="Compare with the time to here.")
@api_options
def summary(
    make_api: Callable[[], OpsApi],
    stream: str | None,
    field: str | None,
    between: tuple[float, float] | None,
    **asked: Any,
) -> None:
    """Tell what a FIELD of a STREAM held: exact figures, and estimates with bounds and confidence.

    Without names: what is summed up.
    """
    api = make_api()
    if stream is None or field is None:
        found = api.ask(
            "GET", "/v1/summaries", params={"limit": 500, **({"stream": stream} if stream else {})}
        ).json()
        return print_items(found, SERIES_COLUMNS, as_json=api.as_json)
    since = asked.pop("since")
    params: dict[str, Any] = {
        name: value for name, value in asked.items() if value not in (None, (), "", False)
    }
    params |= {} if since is None else {"from": since}
    if between is not None:
        params |= {"low": between[0], "high": between[1]}
    if any(name.startswith("with_") for name in params):
        return _compare(api, f"/v1/summaries/{_safe(stream)}/{_safe(field)}/compare", params)
    found = api.ask("GET", f"/v1/summaries/{_safe(stream)}/{_safe(field)}", params=params).json()
    if api.as_json:
        return print_json(found)
    rows = [_flat(row) for row in found["rows"]]
    if asked["step"] is None and rows:
        return print_item(rows[0], as_json=False)
    columns = dict.fromkeys(name for row in rows for name in row)
    return print_items(rows, tuple(columns) or ("start", "end", *FIGURES), as_json=False)


def _safe(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


def _compare(api: OpsApi, path: str, params: Mapping[str, Any]) -> None:
    needed = {"from", "to"} - params.keys()
    if needed:
        raise click.UsageError(f"to compare, also give --{' and --'.join(sorted(needed))}")
    found = api.ask("GET", path, params=params).json()
    print_item(
        found if api.as_json else {name: _estimate(value) for name, value in found.items()},
        as_json=api.as_json,
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for people: a column for each figure and each estimate."""
    flat: dict[str, Any] = {
        "start": row["start"],
        "end": row["end"],
        **{name: _number(row["figures"][name]) for name in FIGURES},
    }
    if row["distinct"]:
        flat["distinct"] = _estimate(row["distinct"])
    flat |= {f"p{100 * one['rank']:g}": _estimate(one) for one in row["quantiles"]}
    if row["between"]:
        flat["between"] = _estimate(row["between"])
    flat |= {f"count of {one['text']}": _estimate(one) for one in row["occurrences"]}
    flat |= {f"contains {one['text']}": _presence(one) for one in row["contains"]}
    if row["frequent"]:
        flat["frequent"] = "\n".join(f"{one['text']}: {_estimate(one)}" for one in row["frequent"])
    if row["sample"]:
        flat["sample"] = "\n".join(row["sample"])
    return flat


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _estimate(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "unknown"
    value = f"{one['value']:.10g}"
    exact = one["low"] == one["high"]
    return (
        value
        if exact
        else f"{value} ({one['low']:.10g} to {one['high']:.10g}, {100 * one['confidence']:.4g} %)"
    )


def _presence(one: Mapping[str, Any]) -> str:
    if one["value"] is None:
        return f"cannot say: {one['reason']}"
    return f"yes ({100 * one['false_positive']:.2g} % wrong)" if one["value"] else "no"

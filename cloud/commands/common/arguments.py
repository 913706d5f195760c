"""The argument of commands that name a query."""

from __future__ import annotations

import click


def query_name(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    """A query's name, checked before anybody is asked."""
    from edgewake.protocol.names import is_stream

    if not is_stream(value):
        raise click.BadParameter(
            f"{value!r} is not the name of a query: expected 1-64 of a-z 0-9 _, a letter first"
        )
    return value

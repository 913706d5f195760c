"""Reads FROM: one stream with its fields, and UNPIVOT behind it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from sqlglot import exp

from edgewake.cloud.queries.query import Unpivot
from edgewake.cloud.queries.syntax.column_names import column_name
from edgewake.cloud.queries.terms.expressions import Scope
from edgewake.cloud.queries.terms.faults import Faults, UnknownStream
from edgewake.cloud.queries.terms.functions import STRING, Kind
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.stream import Stream


def table_of(select: exp.Expr) -> exp.Expr:
    """The one stream in FROM; raises QueryError."""
    from_ = select.args.get("from_")
    table = from_.this if from_ is not None else None
    if isinstance(table, exp.Subquery):
        raise QueryError("FROM: a subquery; expected one stream")
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise QueryError("FROM: expected one stream, e.g. FROM host_metrics")
    extra = [name for name, value in table.args.items() if value and name not in ("this", "pivots")]
    if extra:
        raise QueryError(
            f"FROM {table.sql()[:60]}: {extra[0]}: expected a stream's name alone, or with UNPIVOT"
        )
    return table


def types_of(name: str, streams: Mapping[str, Stream]) -> Mapping[str, Kind]:
    """The fields of a stream with their types; raises UnknownStream."""
    if name not in streams:
        close = get_close_matches(name, streams, n=1)
        known = ", ".join(sorted(streams)[:20]) or "none yet"
        raise UnknownStream(
            f"FROM: unknown stream {name!r}: "
            + (f"did you mean {close[0]!r}?" if close else f"known are {known}")
        )
    return {field: info.type for field, info in streams[name].fields.items()}


def unpivot_of(table: exp.Expr, types: Mapping[str, Kind] | None, faults: Faults) -> Unpivot | None:
    """The UNPIVOT behind a stream; raises QueryError where it has another form."""
    pivots = table.args.get("pivots") or []
    if not pivots:
        return None
    pivot = pivots[0]
    values, lists = pivot.args.get("expressions") or [], pivot.args.get("fields") or []
    shaped = (
        len(pivots) == 1
        and pivot.args.get("unpivot")
        and len(values) == 1
        and len(lists) == 1
        and isinstance(lists[0], exp.In)
        and lists[0].expressions
    )
    columns = lists[0].expressions if shaped else []
    are_fields = all(
        isinstance(column, exp.Column) and isinstance(column.this, exp.Identifier)
        for column in columns
    )
    if not shaped or pivot.args.get("alias") or not are_fields:
        raise QueryError("FROM: expected `stream UNPIVOT (value FOR metric IN (field, field))`")
    kinds = {_kind_of(column, types, faults) for column in columns} - {None}
    if len(kinds) > 1:
        found = ", ".join(sorted(str(kind) for kind in kinds))
        raise QueryError(f"UNPIVOT: fields of several types: {found}")
    return Unpivot(
        column_name(values[0].name, "UNPIVOT"),
        column_name(lists[0].this.name, "UNPIVOT"),
        tuple(column.name for column in columns),
    )


def _kind_of(column: exp.Expr, types: Mapping[str, Kind] | None, faults: Faults) -> Kind:
    """Type of a field of the stream; None for an unknown field, which is a fault."""
    with faults.within(column):
        return Scope(types, {}, faults).kind(column.name)
    return None


def unpivot_kinds(unpivot: Unpivot | None, types: Mapping[str, Kind] | None) -> Mapping[str, Kind]:
    """The two columns that UNPIVOT makes, with their types."""
    if unpivot is None:
        return {}
    kind = None if types is None else types.get(unpivot.fields[0])
    return {unpivot.value: kind, unpivot.metric: STRING}

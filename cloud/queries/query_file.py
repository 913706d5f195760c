"""A query file: what it says, checked, as frozen values. No I/O and no Spark.

A file is a comment header and one SELECT over one stream, or over several of one shape
(syntax/union.py):

    -- name: host_minute
    -- description: Load of each machine, minute by minute
    -- lateness: 30 seconds
    SELECT device, metric, count(value) AS readings, avg(value) AS mean, min(value) AS min,
    max(value) AS max FROM host_metrics UNPIVOT (value FOR metric IN (cpu_percent, memory_percent))
    WHERE value IS NOT NULL
    GROUP BY window(event_time, '1 minute'), device, metric

A window is `window(event_time, size[, slide[, offset]])`, or `date_trunc('day', event_time)` for
the calendar's of the header's zone; without one a row holds everything since the query began. Every
result has `window_start` and `window_end` (ms) and the GROUP BY columns, named in SELECT or not.
Raises QueryError with every fault of the file: its line and column, the clause, what was found and
what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from edgewake.cloud.queries import advice
from edgewake.cloud.queries.plan_cost import check_plan
from edgewake.cloud.queries.query import Query, Shed
from edgewake.cloud.queries.syntax.clauses import check_clauses
from edgewake.cloud.queries.syntax.consumed import check_parts, check_words
from edgewake.cloud.queries.syntax.foreign_table import Foreign, read_foreign
from edgewake.cloud.queries.syntax.from_clause import table_of
from edgewake.cloud.queries.syntax.join import KEYS_MAX
from edgewake.cloud.queries.syntax.normalise import shaped
from edgewake.cloud.queries.syntax.select import SelectReader
from edgewake.cloud.queries.syntax.shedding_header import check_shed, in_its_place, read_shed
from edgewake.cloud.queries.syntax.union import EXPECTED
from edgewake.cloud.queries.syntax.window_syntax import duration_ms, zone_of
from edgewake.cloud.queries.terms.faults import Faults, UnknownStream, place_of
from edgewake.protocol.errors import QueryError, QueryFault
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.names import STREAM_PATTERN, is_stream
from edgewake.protocol.ops.query import QUERY_CHARS_MAX

__all__ = ["QueryError", "UnknownStream", "check_query_file", "parse", "stream_of"]

LATENESS_DEFAULT: Final = "30 seconds"
LATENESS_MS_MAX: Final = 86_400_000
"""The longest `lateness`: the time after a window's end (in event time) until it is final; the
state is kept as long."""
REOPEN_DEFAULT: Final = "0 seconds"
REOPEN_MS_MAX: Final = 8 * 86_400_000
"""The longest `reopen`: the time for which a final window may be opened again; the state of all its
groups is kept as long. Streams are kept for a week by default."""
NUMBER_CHARS_MAX: Final = 1000
"""Characters of one number: more than any that is meant has, and Python reads no whole number of
more than 4,300 digits. A longer one is refused."""

_HEADER_KEYS: Final = (
    "name",
    "description",
    "lateness",
    "reopen",
    "zone",
    "emit",
    "shed",
    "table",
    "on_change",
    "foreign",
)
_NOT_OF_TABLES: Final = ("lateness", "reopen", "emit", "shed", "on_change")
EMITS: Final = ("changes", "final")
"""What the header `emit` may say: a row with each change of it, or once, when its window is
final."""


class _Dialect(Spark):
    """Spark's SQL, in which WINDOW is not a key word: query files need `GROUP BY window(…)`.

    "speed" is a name and 'speed' a text, as in SQL over past and present and in `where=`.
    """

    class Tokenizer(Spark.Tokenizer):
        QUOTES = ["'"]  # noqa: RUF012
        IDENTIFIERS = ["`", '"']  # noqa: RUF012
        KEYWORDS = {  # noqa: RUF012
            word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"
        }


def check_query_file(text: str, streams: Mapping[str, Stream]) -> Query:
    """Read a query file against the catalogue; raises QueryError."""
    return parse(text, streams)


def parse(text: str, streams: Mapping[str, Stream] | None = None) -> Query:
    """Read a query file; without a catalogue its names and types are believed.

    Raises QueryError, UnknownStream where that is all.
    """
    faults = Faults(text)
    header, select = _split(text, faults)
    lateness_ms = _header_ms(
        header.get("lateness", LATENESS_DEFAULT), "lateness", LATENESS_MS_MAX, faults
    )
    reopen_ms = _header_ms(header.get("reopen", REOPEN_DEFAULT), "reopen", REOPEN_MS_MAX, faults)
    if select is None:
        raise faults.error()
    zone = "UTC"
    with faults.within():
        zone = zone_of(header.get("zone", zone))
    try:
        select = shaped(select, faults)
        check_clauses(select, faults)
        table = _table_keys(header, faults)
        on_change = _columns(header, "on_change", faults)
        foreign = _foreign(header, faults)
        reader = SelectReader(select, streams, faults, zone, table, foreign, on_change)
        shed = _shed(header["shed"], reader, text, faults) if "shed" in header else None
        query = reader.read(
            name=header.get("name", ""),
            description=header.get("description", ""),
            lateness_ms=lateness_ms,
            reopen_ms=reopen_ms,
        )
    except RecursionError as error:
        raise QueryError("SQL: nested too deep; expected fewer brackets") from error
    with faults.within():
        if (
            foreign is not None
            and not faults
            and (query.join is None or query.join.foreign != foreign.topic)
        ):
            raise QueryError(
                f"header foreign: {foreign.name!r} is not joined: JOIN {foreign.name} ON "
                f"stream.field = {foreign.name}.key"
            )
    emits_final = _emits_final(header, query, faults)
    if not faults:
        with faults.within(select):
            check_plan(query)
    faults.check()
    query = replace(query, emits_final=emits_final)
    if shed is not None:
        query = replace(query, shed=shed)
        check_shed(query)
    return query


def stream_of(text: str) -> str:
    """The stream that a query file reads. Raises QueryError."""
    faults = Faults(text)
    _, select = _split(text, faults)
    if select is None or faults:
        raise faults.error()
    return str(table_of(shaped(select, faults)).name)


def _table_keys(header: Mapping[str, str], faults: Faults) -> tuple[str, ...]:
    """The columns of header `table`; none without it."""
    names = _columns(header, "table", faults)
    with faults.within():
        if names and (others := [key for key in _NOT_OF_TABLES if key in header]):
            raise QueryError(
                f"header {others[0]}: not with table: of each key the latest reading counts, "
                "whenever it comes"
            )
    return names


def _columns(header: Mapping[str, str], key: str, faults: Faults) -> tuple[str, ...]:
    """The columns that this header names; none without it."""
    if key not in header:
        return ()
    names = tuple(name.strip() for name in header[key].split(","))
    with faults.within():
        if len(names) > KEYS_MAX or len(set(names)) < len(names):
            raise QueryError(
                f"header {key}: expected 1 to {KEYS_MAX} different columns, e.g. `-- {key}: device`"
            )
    return names


def _emits_final(header: Mapping[str, str], query: Query, faults: Faults) -> bool:
    emit = header.get("emit", EMITS[0]).lower()
    with faults.within():
        if emit not in EMITS:
            raise QueryError(f"header emit {header['emit'][:40]!r}: expected {' or '.join(EMITS)}")
        if emit == "final" and not faults and not query.is_rows and query.window.is_all:
            raise QueryError(
                "header emit: final emits each window once, when it is final, and without a "
                "window a row never is:"
                " GROUP BY window(event_time, '1 hour'), or leave the header out"
            )
    return emit == "final"


def _foreign(header: Mapping[str, str], faults: Faults) -> Foreign | None:
    with faults.within():
        return read_foreign(header["foreign"]) if "foreign" in header else None
    return None


def _shed(header: str, reader: SelectReader, text: str, faults: Faults) -> Shed | None:
    with faults.within():
        above_ms, unless = read_shed(header)
        if unless is None:
            return Shed(above_ms)
        try:
            condition = sqlglot.parse_one(in_its_place(unless, text), read=_Dialect)
        except SqlglotError as error:
            raise QueryError(_syntax_fault(error, text)) from error
        _check_numbers(condition)
        return Shed(above_ms, reader.condition(condition, "header shed"))
    return None


def _header_ms(text: str, key: str, ms_max: int, faults: Faults) -> int:
    with faults.within():
        found = duration_ms(text, f"header {key}")
        if found > ms_max:
            raise QueryError(
                f"header {key} {text!r}: expected at most {ms_max // 86_400_000} "
                f"day{'s' if ms_max > 86_400_000 else ''}"
            )
        return found
    return 0


def _split(text: str, faults: Faults) -> tuple[Mapping[str, str], exp.Select | None]:
    """Header and SELECT; without a SELECT None and a fault."""
    if len(text) > QUERY_CHARS_MAX:
        raise QueryError(
            f"query file of {len(text)} characters: expected at most {QUERY_CHARS_MAX}"
        )
    header = _header(text, faults)
    with faults.within():
        select = _select(text)
        check_words(text, _Dialect().tokenize(text), select, faults)
        check_parts(select, faults)
        _check_numbers(select)
        return header, select
    return header, None


def _check_numbers(tree: exp.Expr) -> None:
    """Raises QueryError for a number of more than NUMBER_CHARS_MAX characters."""
    for literal in tree.find_all(exp.Literal):
        text = str(literal.this)
        if not literal.is_string and len(text) > NUMBER_CHARS_MAX:
            raise QueryError(
                f"SQL: {text[:20]}… is a number of {len(text)} characters: expected at most "
                f"{NUMBER_CHARS_MAX}"
            )


def _select(text: str) -> exp.Select:
    try:
        statements = [
            one
            for one in sqlglot.parse(text, read=_Dialect)
            if one is not None and not isinstance(one, exp.Semicolon)
        ]
    except SqlglotError as error:
        fault = _syntax_fault(error, text)
        instead = advice.of_syntax(text)
        raise QueryError(
            replace(fault, detail=fault.detail + (f"; {instead}" if instead else ""))
        ) from error
    except RecursionError as error:
        raise QueryError("SQL: nested too deep; expected fewer brackets") from error
    except ValueError as error:  # sqlglot's own, of an argument that it takes for a name
        raise QueryError(f"SQL: {error}") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        found = [type(statement).__name__.upper() for statement in statements] or ["nothing"]
        is_union = isinstance(statements[0] if statements else None, exp.SetOperation)
        instead = (
            f"register a query for each SELECT, or of streams of one shape one {EXPECTED}"
            if is_union
            else advice.of_syntax(text)
        )
        raise QueryError(
            f"SQL: expected one SELECT, found {', '.join(found)[:80]}"
            + (f": {instead}" if instead else "")
        )
    return statements[0]


def _syntax_fault(error: SqlglotError, text: str) -> QueryFault:
    """The first syntax error.

    sqlglot names the last character of a word, and for a quote without an end its line and offset.
    """
    details = (getattr(error, "errors", None) or [{}])[0]
    if "description" in details:
        word = details["highlight"]
        what = details["description"].partition(" but got <Token")[0]
        what = re.sub(
            r"Required keyword: '\w+' missing for <class '[\w.]+\.(\w+)'>",
            r"\1 takes another argument",
            what,
        )
        quoted = (
            f': it is a word of SQL; as a name write "{word}"'
            if what.endswith(" name") and word.isidentifier()
            else ""
        )
        return QueryFault(
            f"SQL: {what} near {word!r}{quoted}",
            details["line"],
            max(1, details["col"] - len(word) + 1),
        )
    quote = re.search(r"(.*) from \d+:(\d+)$", str(error.__context__))
    if quote is not None:
        return QueryFault(
            f"SQL: {quote[1].lower()} of what begins here", *place_of(text, int(quote[2]))
        )
    plain = re.sub(r"\x1b\[\d+m", "", str(error))
    return QueryFault(f"SQL: {plain.splitlines()[0]}")


def _header(text: str, faults: Faults) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if not line.startswith("--"):
            break
        with faults.within():
            key, value = _header_line(number, line)
            if key in found:
                raise QueryError(QueryFault(f"header key {key!r} twice", number))
            found[key] = value
    with faults.within():
        if "name" not in found:
            raise QueryError("header: expected a line `-- name: my_query`")
        if not is_stream(found["name"]):
            raise QueryError(
                f"header name {found['name'][:80]!r}: expected {STREAM_PATTERN.pattern}, e.g. "
                "host_minute"
            )
    return found


def _header_line(number: int, line: str) -> tuple[str, str]:
    match = re.fullmatch(r"--\s*+([A-Za-z_]+)\s*+:\s*+(.*\S)\s*+", line)
    if match is None:
        raise QueryError(
            QueryFault(
                f"header {line[:60]!r}: expected `-- key: value` with {', '.join(_HEADER_KEYS)}",
                number,
            )
        )
    key, value = match.groups()
    if key not in _HEADER_KEYS:
        close = get_close_matches(key, _HEADER_KEYS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f": expected {', '.join(_HEADER_KEYS)}"
        raise QueryError(QueryFault(f"unknown header key {key!r}{hint}", number))
    return key, value

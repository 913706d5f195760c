"""Units of the columns of an answer in SQL."""

from __future__ import annotations

import pytest

from edgewake.cloud.lake.answer import engine
from edgewake.cloud.lake.checks import tree_of
from edgewake.cloud.lake.shape import known_units
from edgewake.cloud.queries.sql_units import units_of

TABLES = known_units(
    {
        "climate": {"temp": "°C", "Hum": "%", "epoch": "s", "x": "m", "X": "km"},
        "outside": {"temp": "°F", "wind": "m/s"},
    }
)


def units(sql: str) -> list[str]:
    """Of each column, by the engine's own names and tree."""
    with engine() as db:
        db.execute(
            "CREATE TABLE climate (device VARCHAR, temp DOUBLE, hum DOUBLE, epoch INT, x INT)"
        )
        db.execute("CREATE TABLE outside (device VARCHAR, temp DOUBLE, wind DOUBLE)")
        names = [name for name, *_ in db.execute(sql).description or ()]
        return units_of(tree_of(db, sql), names, TABLES)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT temp, hum, device FROM climate", ["°C", "%", ""]),
        ("SELECT TEMP AS t, c.hum FROM Climate c", ["°C", "%"]),
        ("SELECT * FROM climate", ["", "°C", "%", "", ""]),
        ("FROM climate", ["", "°C", "%", "", ""]),
        ("SELECT avg(temp), min(temp) AS m, quantile_cont(temp, 0.9) FROM climate", ["°C"] * 3),
        ("SELECT round(avg(temp), 1), max(temp)::INT FROM climate", ["°C", "°C"]),
        ("SELECT lag(temp) OVER (), max(hum) OVER () AS h FROM climate", ["°C", "%"]),
        ("SELECT avg(temp) FILTER (WHERE hum > 1) FROM climate", ["°C"]),
        ("SELECT count(*), count(temp), temp * 2, max(temp) - min(temp) FROM climate GROUP BY temp",
         ["", "", "", ""]),
        ("SELECT epoch, x FROM climate", ["", ""]),
        ("SELECT c.temp, o.temp, wind FROM climate c JOIN outside o USING (device)",
         ["°C", "°F", "m/s"]),
        ("SELECT o.* FROM climate c JOIN outside o USING (device)", ["", "°F", "m/s"]),
        ("SELECT * FROM climate c JOIN outside o ON true", [""] * 8),
        ("SELECT m FROM (SELECT max(temp) AS m FROM climate)", ["°C"]),
        ("WITH warm AS (SELECT temp AS w FROM climate) SELECT w FROM warm", ["°C"]),
        ("WITH climate AS (SELECT 1 AS temp) SELECT temp FROM climate", [""]),
        ("SELECT temp FROM climate UNION ALL SELECT temp FROM climate", ["°C"]),
        ("SELECT temp FROM climate UNION ALL SELECT temp FROM outside", [""]),
        ("SELECT * REPLACE (temp * 2 AS temp) FROM climate", [""] * 5),
        ("SELECT a FROM climate AS c(device, a)", [""]),
        ("SELECT temp, count(*) AS temp FROM climate GROUP BY temp", ["°C", ""]),
        ("VALUES (1)", [""]),
    ],
)  # fmt: skip
def test_a_column_has_the_unit_of_the_field_whose_values_it_has(sql: str, found: list[str]) -> None:
    assert units(sql) == found


def test_a_text_that_is_nested_deeply_has_no_units() -> None:
    assert units(f"SELECT {'abs(' * 300}temp{')' * 300} FROM climate") in ([""], ["°C"])

"""Arrows only downwards: deploy → simulators → cloud | edge → protocol."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.house.source import FLOORS, ROOT, files, forbidden, imports, module_name, modules

CLOUD_LIBRARIES = (
    "pyspark",
    "confluent_kafka",
    "fastapi",
    "starlette",
    "uvicorn",
    "sse_starlette",
    "sqlglot",
    "pyarrow",
)
WEB_LIBRARIES = ("fastapi", "starlette", "uvicorn", "httptools", "httpx", "requests")


def test_protocol_imports_nobody_of_ours():
    assert (
        forbidden(
            modules("protocol"),
            "edgewake.edge",
            "edgewake.cloud",
            "edgewake.simulators",
            "edgewake.deploy",
        )
        == []
    )


def test_edge_and_cloud_never_import_each_other():
    assert (
        forbidden(modules("edge"), "edgewake.cloud", "edgewake.simulators", "edgewake.deploy") == []
    )
    assert (
        forbidden(modules("cloud"), "edgewake.edge", "edgewake.simulators", "edgewake.deploy") == []
    )


def test_simulators_stand_outside_and_use_the_protocol_only():
    assert (
        forbidden(modules("simulators"), "edgewake.edge", "edgewake.cloud", "edgewake.deploy") == []
    )


def test_deploy_starts_parts_and_imports_none_of_their_insides():
    assert (
        forbidden(modules("deploy"), "edgewake.edge", "edgewake.cloud", "edgewake.simulators") == []
    )


def test_reading_kafka_by_cursor_knows_no_http_and_nobody_who_serves_it():
    servers = (
        "edgewake.cloud.access",
        "edgewake.cloud.push",
        "edgewake.cloud.ops",
        "edgewake.cloud.web.http_part",
    )
    log = modules("cloud/log")
    assert log
    assert forbidden(log, *servers, *WEB_LIBRARIES) == []


def test_the_language_of_queries_is_read_without_spark_kafka_or_the_analysis():
    """So a command checks a query file where neither is installed."""
    queries = modules("cloud/queries")
    assert queries
    assert forbidden(queries, "pyspark", "pyarrow", "confluent_kafka", "edgewake.cloud.kafka") == []
    assert forbidden(queries, "edgewake.cloud.analysis") == []


@pytest.mark.parametrize("part", ["access", "push", "ops"])
def test_parts_that_serve_stand_on_the_log_and_never_on_each_other(part: str):
    others = {"access", "push", "ops"} - {part}
    found = modules(f"cloud/{part}")
    assert found
    assert forbidden(found, *(f"edgewake.cloud.{other}" for other in sorted(others))) == []


def _graph() -> dict[Path, set[Path]]:
    """Module → modules of ours that it imports, also inside functions and for types only."""
    found = {module_name(path): path for path in modules(*FLOORS)}
    graph: dict[Path, set[Path]] = {}
    for path in modules(*FLOORS):
        targets = {
            found.get(name) or found.get(name.rpartition(".")[0]) for _, name in imports(path)
        }
        graph[path] = {target for target in targets if target is not None} - {path}
    return graph


def _circles(graph: Mapping[Path, Collection[Path]]) -> list[str]:
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [str(path) for path in error.args[1]]
    return []


def test_no_module_imports_itself_through_others():
    assert _circles(_graph()) == []


def test_no_folder_imports_itself_through_others_beside_it():
    """A package's own modules count for themselves: `config.py` lies below its folders, `run.py`
    above them.
    """
    parents = {path.parent.parent for path in modules(*FLOORS)}

    def room(path: Path) -> Path:
        return path if path.parent in parents else path.parent

    rooms: dict[Path, set[Path]] = {}
    for path, targets in _graph().items():
        rooms.setdefault(room(path), set()).update(
            room(target) for target in targets if room(target) != room(path)
        )
    assert _circles(rooms) == []


def test_a_circle_is_found():
    a, b = Path("a.py"), Path("b.py")
    assert _circles({a: {b}, b: {a}}) != []


def test_nothing_imports_its_tests():
    assert forbidden(modules(*FLOORS), "tests") == []


def test_a_device_needs_no_library_of_the_cloud():
    assert forbidden(modules("edge", "protocol"), *CLOUD_LIBRARIES) == []


@pytest.mark.parametrize("judge", ["simulators/ledger.py", "tests/day/oracle.py"])
def test_who_judges_us_knows_nothing_of_ours(judge: str):
    assert (ROOT / judge).exists()
    assert forbidden([Path(judge)], "edgewake") == []


def test_devices_of_the_day_are_not_ours():
    """Whoever encodes with our code finds none of its faults."""
    found = [path for path in modules("tests") if path.match("tests/day/*_things.py")]
    assert len(found) == 5
    assert forbidden(found, "edgewake") == []


@pytest.mark.parametrize(
    "path",
    [path for path in modules(*FLOORS) if path.name.endswith("cli.py") or "commands" in path.parts],
    ids=str,
)
def test_a_command_imports_light_things_only_until_it_runs(path: Path):
    """So that `edgewake --help` is fast and works where a part's libraries are not installed."""
    heavy = {
        "pyspark",
        "confluent_kafka",
        "fastapi",
        "uvicorn",
        "sqlglot",
        "pyarrow",
        "aiomqtt",
        "paho",
        "jgo",
        "httpx",
        "rich",
    }
    lines = (ROOT / path).read_text().splitlines()
    at_the_top = {
        module.split(".")[0]
        for line, module in imports(path)
        if not lines[line - 1].startswith(" ")
    }
    assert at_the_top & heavy == set()


def test_only_the_clock_asks_the_machine_what_time_it_is():
    asking = ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow")
    found = [
        f"{path}:{number}"
        for path in modules("protocol", "edge", "cloud")
        if path != Path("protocol/clock.py")
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if any(f"{call}(" in line for call in asking)
    ]
    assert found == []


MAY_ASK_WHERE_A_TOPIC_ENDS = {
    "cloud/kafka/offsets.py",  # asks again while a new topic has no leader
    "cloud/sequencer/up_reader.py",  # asks what librdkafka already knows, not Kafka
    "tests/sequencer/test_sequencer.py",  # asks thousands of times, in a loop of its own
    "tests/house/test_imports.py",
}


def test_only_who_can_wait_for_a_leader_asks_kafka_where_a_topic_ends():
    asking = {
        str(path)
        for path in modules("cloud", "tests")
        if "get_watermark_offsets(" in (ROOT / path).read_text()
    }
    assert asking == MAY_ASK_WHERE_A_TOPIC_ENDS


def test_what_a_module_of_the_pages_imports_is_used():
    """No linter reads them."""
    of_pages = [
        path
        for path in files()
        if path.suffix == ".js" and path.is_relative_to("cloud/page") and "vendor" not in path.parts
    ]
    assert len(of_pages) > 40
    unused = [
        (path.as_posix(), name)
        for path in of_pages
        for text in [(ROOT / path).read_text("utf-8")]
        for names in re.findall(r"^import \{([^}]*)\}", text, re.MULTILINE)
        for name in (one.split(" as ")[-1].strip() for one in names.split(","))
        if len(re.findall(rf"\b{name}\b", text)) < 2
    ]
    assert unused == []

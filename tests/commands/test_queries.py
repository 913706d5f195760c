"""`edgewake query` against a running operations API; the analysis is played by who writes
progress.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.protocol import topics
from edgewake.protocol.ops.preview import Preview
from edgewake.protocol.ops.query import Progress, QueryState
from edgewake.protocol.ops.repair import Repair
from tests.ops.conftest import Writer
from tests.ops.service import ACCESS, KEY, Ops, running
from tests.ops.test_app import declare, eventually, sql
from tests.services import PATIENCE_S, Kafka, free_ports, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    with running(kafka.bootstrap, tmp_path_factory.mktemp("query")) as service:
        yield service


@pytest.fixture
def query_file(ops: Ops, writer: Writer, unique: Callable[[str], str], tmp_path: Path) -> Path:
    """A good query file on a stream that there is."""
    stream, name = unique("s"), unique("q")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    path = tmp_path / f"{name}.sql"
    path.write_text(sql(name, stream))
    return path


def command(ops: Ops, *arguments: str, key: str = KEY) -> list[str]:
    return [
        sys.executable,
        "-m",
        "edgewake.deploy.cli",
        "query",
        "--ops",
        ops.url,
        "--key",
        key,
        *arguments,
    ]


def run(ops: Ops, *arguments: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(ops, *arguments, key=key), capture_output=True, text=True, timeout=PATIENCE_S
    )


def say(writer: Writer, name: str, state: QueryState, detail: str = "") -> None:
    """What the analysis would say."""
    progress = Progress(
        query=name, stream="s", state=state, detail=detail, updated_at=time.time_ns() // 1_000_000
    )
    writer.put(topics.PROGRESS, name, progress.model_dump_json().encode())


def test_add_waits_until_the_query_runs_and_says_where_its_results_are(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    name = query_file.stem
    adding = subprocess.Popen(
        command(ops, "add", str(query_file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: ops.client.get(f"/v1/queries/{name}"), lambda q: q["state"] == "starting")
    say(writer, name, QueryState.RUNNING)
    out, err = adding.communicate(timeout=PATIENCE_S)
    assert (adding.returncode, json.loads(out)["state"]) == (0, "running"), err
    assert f"curl -N '{ACCESS}/v1/streams/{name}/events'" in err


def test_add_says_why_the_analysis_refused_it_and_what_to_do(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    name = query_file.stem
    adding = subprocess.Popen(
        command(ops, "add", str(query_file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: ops.client.get(f"/v1/queries/{name}"))
    say(writer, name, QueryState.REFUSED, "too many windows")
    _, err = adding.communicate(timeout=PATIENCE_S)
    assert adding.returncode == 1
    assert "too many windows" in err
    assert f"edgewake query remove {name}" in err


@pytest.mark.long
def test_add_says_what_the_analysis_waits_for(ops: Ops, writer: Writer, query_file: Path) -> None:
    name = query_file.stem
    run(ops, "add", str(query_file), "--wait", "0")
    say(writer, name, QueryState.RETRYING, "No space left on device")
    eventually(lambda: ops.client.get(f"/v1/queries/{name}"), lambda q: q["state"] == "retrying")
    done = run(ops, "add", str(query_file), "--wait", "1")
    assert done.returncode == 1
    assert "retrying: No space left on device. It is registered" in done.stderr
    say(writer, name, QueryState.RUNNING)
    assert run(ops, "add", str(query_file)).returncode == 0, "it was waited for"


def test_add_gives_up_after_its_time_and_says_what_to_do(ops: Ops, query_file: Path) -> None:
    done = run(ops, "add", str(query_file), "--wait", "1")
    assert done.returncode == 1
    assert "Is the analysis running?" in done.stderr


def test_a_file_that_does_not_parse_is_refused_with_its_name_and_line(
    ops: Ops, query_file: Path
) -> None:
    query_file.write_text(query_file.read_text().replace("-- description", "-- descripton"))
    done = run(ops, "add", str(query_file))
    assert done.returncode == 1
    assert f"{query_file}: line 2" in done.stderr
    assert ops.client.get(f"/v1/queries/{query_file.stem}").status_code == 404


@pytest.mark.long
def test_a_file_that_does_not_fit_the_catalogue_is_refused_with_its_reason(
    ops: Ops, query_file: Path
) -> None:
    query_file.write_text(
        query_file.read_text()
        .replace("avg(speed)", "avg(spood)")
        .replace("FROM", ", summ(speed) AS more FROM")
    )
    done = run(ops, "add", str(query_file))
    assert done.returncode == 1
    field, function = (
        next(line for line in done.stderr.splitlines() if word in line)
        for word in ("spood", "summ")
    )
    assert f"{query_file}: line " in field
    assert "did you mean 'speed'?" in field
    assert f"{query_file}: line " in function
    assert "did you mean sum?" in function


@pytest.mark.long
def test_a_query_is_registered_before_its_stream_is_there_and_a_check_says_that_it_is_not(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    name, text = query_file.stem, query_file.read_text()
    there = re.findall(r"FROM (\w+)", text)[0]
    query_file.write_text(text.replace(f"FROM {there}", f"FROM {there}_later"))
    checked = run(ops, "check", str(query_file))
    assert (checked.returncode, f"did you mean '{there}'?" in checked.stderr) == (1, True)
    assert run(ops, "replace", str(query_file)).returncode == 1, "there is nothing to be replaced"

    adding = subprocess.Popen(
        command(ops, "add", str(query_file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: ops.client.get(f"/v1/queries/{name}"), lambda q: q["state"] == "starting")
    say(writer, name, QueryState.STARTING, f"waits for stream '{there}_later'")
    out, err = adding.communicate(timeout=PATIENCE_S)
    assert (adding.returncode, json.loads(out)["state"]) == (0, "starting"), err
    assert (
        f"{name}: waits for stream '{there}_later'; `edgewake query show {name}` tells when it runs"
        in err
    )
    query_file.write_text(query_file.read_text().replace("avg(speed)", "max(speed)"))
    assert run(ops, "replace", str(query_file), "--wait", "0").returncode == 0

    query_file.write_text(
        query_file.read_text()
        .replace("max(speed)", "summ(speed)")
        .replace(f"-- name: {name}", f"-- name: {name}_2")
    )
    both = run(ops, "add", str(query_file))
    assert (both.returncode, "did you mean sum?" in both.stderr) == (1, True), (
        "another fault is one at once"
    )
    assert ops.client.get(f"/v1/queries/{name}_2").status_code == 404


@pytest.mark.long
def test_queries_are_listed_shown_paused_resumed_and_removed(ops: Ops, query_file: Path) -> None:
    name = query_file.stem
    run(ops, "add", str(query_file), "--wait", "0")
    listed = json.loads(run(ops, "list").stdout)
    assert name in [item["name"] for item in listed]
    assert json.loads(run(ops, "show", name).stdout)["text"] == query_file.read_text()
    assert json.loads(run(ops, "pause", name).stdout)["paused"] is True
    assert json.loads(run(ops, "resume", name).stdout)["paused"] is False
    assert run(ops, "remove", name).returncode == 0
    missing = run(ops, "show", name)
    assert missing.returncode == 1
    assert "no query" in missing.stderr


def test_a_query_is_replaced_in_one_step_under_its_name(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    name = query_file.stem
    run(ops, "add", str(query_file), "--wait", "0")
    before = ops.client.get(f"/v1/queries/{name}").json()
    query_file.write_text(query_file.read_text().replace("avg(speed)", "max(speed)"))
    assert run(ops, "add", str(query_file), "--wait", "0").returncode == 1, (
        "another text under the name is only taken where it is meant"
    )

    replacing = subprocess.Popen(
        command(ops, "replace", str(query_file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(
        lambda: ops.client.get(f"/v1/queries/{name}"),
        lambda q: q["registered_at"] != before["registered_at"],
    )
    say(writer, name, QueryState.RUNNING)
    _, err = replacing.communicate(timeout=PATIENCE_S)
    assert (replacing.returncode, "replaced" in err) == (0, True), err
    after = ops.client.get(f"/v1/queries/{name}").json()
    assert (after["text"], after["topic"] != before["topic"]) == (query_file.read_text(), True)
    assert [row["name"] for row in json.loads(run(ops, "list").stdout)].count(name) == 1


@pytest.mark.long
def test_only_a_registered_query_is_replaced_and_only_by_one_of_its_name(
    ops: Ops, query_file: Path
) -> None:
    missing = run(ops, "replace", str(query_file))
    assert (missing.returncode, "no query" in missing.stderr) == (1, True)
    run(ops, "add", str(query_file), "--wait", "0")
    other = query_file.read_text().replace(f"-- name: {query_file.stem}", "-- name: another_one")
    answer = ops.client.put(f"/v1/queries/{query_file.stem}", json={"text": other})
    assert answer.status_code == 422
    assert "'another_one'" in answer.json()["detail"]


def outside(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`edgewake query` where no system runs and no key is set."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("EDGEWAKE_")
    }
    command = [sys.executable, "-m", "edgewake.deploy.cli", "query", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list",), "no key: run this where `edgewake up` runs"),
        (("--key", "kéykéykéykéykéykéy", "list"), "expected ASCII"),
        (("--key", "k" * 20, "show", "../devices"), "'../devices' is not the name of a query"),
        (("--key-file", "missing", "list"), "missing: No such file"),
    ],
)
def test_what_cannot_be_asked_ends_with_a_sentence_and_code_2(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = outside(tmp_path, *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", "the file is empty"), (b" \n", "the file is empty"), (b"\x9e\xff", "in UTF-8")],
)
def test_a_file_that_is_no_query_is_refused_before_anybody_is_asked(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    (tmp_path / "q.sql").write_bytes(content)
    done = outside(tmp_path, "--key", "k" * 20, "add", "q.sql")
    assert done.returncode == 1
    assert expected in done.stderr


@pytest.mark.long
def test_a_table_shows_whole_names_in_80_columns(ops: Ops, query_file: Path) -> None:
    run(ops, "add", str(query_file), "--wait", "0")
    done = subprocess.run(
        [*command(ops)[:-1], KEY, "--table", "list"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert query_file.stem in done.stdout, done.stdout + done.stderr


@pytest.mark.long
def test_a_wrong_key_is_said(ops: Ops) -> None:
    done = run(ops, "list", key="wrong-key")
    assert done.returncode == 1
    assert "EDGEWAKE_OPS_KEY" in done.stderr


def test_an_api_that_is_away_is_said(ops: Ops) -> None:
    away = Ops(f"http://127.0.0.1:{free_ports(1)[0]}", ops.client, ops.process)
    done = run(away, "list")
    assert done.returncode == 1
    assert "does not answer" in done.stderr


def answer(writer: Writer, asked: dict[str, Any], **more: Any) -> None:
    """What the analysis would say of a repair."""
    after = Repair.model_validate(asked | more | {"revision": asked["revision"] + 1})
    writer.put(topics.REPAIRS, after.id, after.model_dump_json().encode())


@pytest.mark.long
def test_a_repair_is_asked_for_waited_for_and_kept_with_who_asked_and_what_changed(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    name = query_file.stem
    run(ops, "add", str(query_file), "--wait", "0")
    arguments = ["repair", name, "--from", "2026-11-21T08:00:00Z", "--to", "1795252800000"]
    asking = subprocess.Popen(
        command(ops, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    (asked,) = eventually(
        lambda: ops.client.get(f"/v1/queries/{name}/repairs"), lambda page: page["items"]
    )["items"]
    assert (asked["begin"], asked["end"], asked["state"], asked["asked_by"]) == (
        1795248000000,
        1795252800000,
        "waiting",
        "operator",
    )
    answer(writer, asked, state="done", changed=3)
    out, err = asking.communicate(timeout=PATIENCE_S)
    assert (asking.returncode, json.loads(out)["changed"]) == (0, 3), err

    filling = subprocess.Popen(
        command(ops, "backfill", name, "--from", "1795248000000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    page = eventually(
        lambda: ops.client.get(f"/v1/queries/{name}/repairs"), lambda page: page["total"] == 2
    )
    waits = page["items"][0] | {
        "revision": page["items"][0]["revision"] + 1,
        "state": "waiting",
        "detail": "the rest follows later",
    }
    answer(writer, page["items"][0], state="waiting", detail=waits["detail"], done_to=1795248000000)
    assert filling.stderr is not None
    assert any(
        f"{name}: waiting: the rest follows later" in line
        for line in iter(filling.stderr.readline, "")
    ), "before it is over"
    answer(writer, waits, state="refused", detail="retention deleted readings")
    _, err = filling.communicate(timeout=PATIENCE_S)
    assert (filling.returncode, "retention deleted readings" in err) == (1, True)
    assert [row["kind"] for row in json.loads(run(ops, "repairs", name).stdout)] == [
        "backfill",
        "repair",
    ]


def test_rebuilds_of_a_stream_are_asked_for_and_waited_for_and_who_asked_and_what_was_lost_is_kept(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    name = query_file.stem
    run(ops, "add", str(query_file), "--wait", "0")
    stream = f"of_{name}"
    runs = Progress(
        query=name, stream=stream, state=QueryState.RUNNING, updated_at=time.time_ns() // 1_000_000
    )
    writer.put(topics.PROGRESS, name, runs.model_dump_json().encode())
    eventually(
        lambda: ops.client.get(f"/v1/queries/{name}"), lambda query: query["stream"] == stream
    )
    asking = subprocess.Popen(
        command(ops, "rebuild", "--stream", stream, "--lossy"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    (asked,) = eventually(
        lambda: ops.client.get(f"/v1/queries/{name}/repairs"), lambda page: page["items"]
    )["items"]
    assert (asked["kind"], asked["asked_by"], asked["lossy"], asked["removed_at"]) == (
        "rebuild",
        "operator",
        True,
        None,
    )
    answer(writer, asked, state="done", kept_from=1795248000000)
    out, err = asking.communicate(timeout=PATIENCE_S)
    assert (asking.returncode, [row["kept_from"] for row in json.loads(out)]) == (
        0,
        [1795248000000],
    ), err
    assert "no query of stream 'nowhere' runs" in run(ops, "rebuild", "--stream", "nowhere").stderr
    assert "or --all" in run(ops, "rebuild", name, "--all").stderr


def test_a_repair_of_no_query_of_no_time_or_of_an_empty_range_is_refused(
    ops: Ops, query_file: Path
) -> None:
    name = query_file.stem
    assert "no query" in run(ops, "repair", name, "--from", "0").stderr
    run(ops, "add", str(query_file), "--wait", "0")
    assert "expected a time such as" in run(ops, "repair", name, "--from", "yesterday").stderr
    assert (
        "expected one that begins before it ends"
        in run(ops, "repair", name, "--from", "5", "--to", "5").stderr
    )
    assert ops.client.get(f"/v1/queries/{name}/repairs").json()["total"] == 0


def test_a_preview_is_asked_for_waited_for_and_leaves_nothing_behind(
    ops: Ops, writer: Writer, query_file: Path
) -> None:
    asking = subprocess.Popen(
        command(ops, "preview", str(query_file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    asked = eventually_asked(writer, query_file.read_text())
    answer = asked.model_copy(update={"rows": ('{"device": "a", "mean": 2.5}',), "is_cut": True})
    writer.put(topics.PREVIEWS, asked.id, answer.model_dump_json().encode())
    out, err = asking.communicate(timeout=PATIENCE_S)
    assert (asking.returncode, json.loads(out)) == (0, {"device": "a", "mean": 2.5}), err
    assert "there are more" in err
    assert previews(writer)[asked.id] is None
    assert ops.client.get(f"/v1/queries/{query_file.stem}").status_code == 404

    query_file.write_text(query_file.read_text().replace("avg(speed)", "avg(spood)"))
    refused = run(ops, "preview", str(query_file))
    assert (refused.returncode, "did you mean 'speed'?" in refused.stderr) == (1, True)


def previews(writer: Writer) -> dict[str, Preview | None]:
    """What stands on `ew.previews`."""
    found: dict[str, Preview | None] = {}

    def keep(key: str, value: bytes | None) -> None:
        found[key] = None if value is None else Preview.model_validate_json(value)

    topic_admin.ensure_topics(writer.config, [topics.PREVIEWS])
    reader = TableReader(writer.config, "test-previews", {topics.PREVIEWS: keep})
    try:
        reader.read_all()
    finally:
        reader.close()
    return found


def eventually_asked(writer: Writer, text: str) -> Preview:
    asked: list[Preview] = []

    def is_there() -> bool:
        asked[:] = [
            one for one in previews(writer).values() if one is not None and one.text == text
        ]
        return bool(asked)

    wait_until(is_there, "the preview is asked for")
    return asked[0]

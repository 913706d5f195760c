"""Access servers with keys of readers, for tests that need bounds of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file
from tests.rights.forge import write
from tests.services import free_ports, part


@contextmanager
def keyed_server(
    directory: Path,
    config: KafkaConfig,
    roles: Mapping[str, list[dict[str, Any]] | dict[str, Any]],
    keys: str,
    **settings: Any,
) -> Iterator[Server]:
    """A server with these roles, their grants alone or all of them, and these lines of its key
    file.
    """
    (port,) = free_ports(1)
    text = {
        "name": f"access-{port}",
        "port": port,
        "cursor_key_file": str(key_file(directory)),
        "kafka": {"bootstrap": config.bootstrap},
        "rights": {
            "key_file": str(write(directory / "readers.keys", keys)),
            "roles": {
                name: {"grants": found} if isinstance(found, list) else found
                for name, found in roles.items()
            },
        },
    }
    path = directory / f"access-{port}.toml"
    path.write_text(tomli_w.dumps(text | settings))
    running = Server(port, part("access", path, directory / f"access-{port}.log"))
    try:
        yield running.start()
    finally:
        running.process.stop()

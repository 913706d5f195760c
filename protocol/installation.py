"""The addresses of a running `edgewake up`, which it leaves in its data folder.

Other commands find them there.

    <data>/run.json     {"access": ["http://127.0.0.1:8700"], "push": ["http://127.0.0.1:8703"],
                        "ops": "http://127.0.0.1:8702", "mqtt": "127.0.0.1:8710", …}

The folder is $EDGEWAKE_DATA, or `data` here. The file counts only while the process that wrote it
holds the folder's lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.comments import without_comment

DATA_VARIABLE: Final = "EDGEWAKE_DATA"
DATA_DEFAULT: Final = Path("data")
RUN_FILE: Final = "run.json"
LOCK_FILE: Final = "lock"


@dataclass(frozen=True, slots=True)
class Installation:
    """Addresses of a running system; empty for what it does not run."""

    access: tuple[str, ...] = ()
    """Addresses of access servers."""
    push: tuple[str, ...] = ()
    """Addresses of push proxies."""
    ops: str = ""
    """Address of the operations API."""
    ops_key_file: str = ""
    mqtt: str = ""
    """host:port of the MQTT broker."""
    kafka: str = ""
    """host:port of Kafka."""


def write(data: Path, installation: Installation) -> None:
    """Write the file; the caller holds the folder's lock. Raises OSError."""
    new = data / f"{RUN_FILE}.new"
    new.write_text(json.dumps(asdict(installation), indent=1) + "\n", "utf-8")
    new.replace(data / RUN_FILE)


def find(environment: Mapping[str, str] = os.environ) -> Installation:
    """Find the running system; without one, an Installation without addresses."""
    data = Path(environment.get(DATA_VARIABLE) or DATA_DEFAULT)
    try:
        if not _is_locked(data / LOCK_FILE):
            return Installation()
        found = json.loads((data / RUN_FILE).read_text("utf-8"))
        several = {name: tuple(found.get(name, ())) for name in ("access", "push")}
        return Installation(**found | several)
    except (OSError, ValueError, TypeError):
        return Installation()


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def key_of(file: Path) -> str:
    """A key of a key file of the operations API: the last one that may operate, else the last.

    Raises ConfigError.
    """
    try:
        lines = [without_comment(line).split() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file}: {error.strerror if isinstance(error, OSError) else 'is not text'}"
        ) from error
    words = [line for line in lines if len(line) in (1, 3)]
    operating = [line for line in words if len(line) == 1 or line[1] == "operate"]
    if not words:
        raise ConfigError(f"{file}: holds no key")
    return (operating or words)[-1][-1]

"""The parts start in a container under whatever uid it was given: as `user:` in compose.yaml, or as
a cluster chooses one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import tomli_w

from edgewake.deploy import cli, secret_files
from tests.deploy.test_signs_of_life import listening, received
from tests.services import Kafka, Mosquitto, Process, free_ports, wait_until

ENTRYPOINT = Path(cli.__file__).resolve().with_name("entrypoint.sh")
UID = 54_321
"""Of nobody; `getent passwd` does not know it."""
READ_ALL = (
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
)
"""The uid is a stranger in this checkout, which may lie where strangers may not look; in an image
it may."""


def stranger(*command: str) -> list[str]:
    """A command run by a user without a name, as in a container: no capability but reading, none to
    be gained.
    """
    return [
        "setpriv",
        f"--reuid={UID}",
        f"--regid={UID}",
        "--clear-groups",
        "--no-new-privs",
        *READ_ALL,
        *command,
    ]


@pytest.fixture(autouse=True)
def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may start a process under another uid")


def test_the_uid_has_no_name_and_the_entrypoint_gives_it_one() -> None:
    ask = "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)"
    without = subprocess.run(
        stranger(sys.executable, "-c", ask), capture_output=True, text=True, check=False
    )
    assert "KeyError" in without.stderr
    named = subprocess.run(
        stranger("sh", str(ENTRYPOINT), sys.executable, "-c", ask),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (named.stdout, named.stderr) == ("/var/lib/edgewake\n", "")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to everybody: pytest's own may be entered by its user only."""
    with tempfile.TemporaryDirectory(prefix="edgewake-uid-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def running(
    name: str, settings: dict[str, object], folder: Path
) -> Iterator[tuple[Process, socket.socket]]:
    """A part, started as the image starts it; where its signs of life arrive."""
    config = folder / f"{name}.toml"
    config.write_text(tomli_w.dumps(settings))
    config.chmod(0o644)
    command = stranger(
        "sh",
        str(ENTRYPOINT),
        sys.executable,
        "-m",
        "edgewake.deploy.cli",
        name,
        "--config",
        str(config),
    )
    address = f"@edgewake-uid-{os.getpid()}-{name}"
    environ = {"HOME": str(folder), "TMPDIR": str(folder), "NOTIFY_SOCKET": address}
    with (
        listening(address) as signs,
        Process(command, folder / f"{name}.log", env=environ) as process,
    ):
        yield process, signs


@pytest.mark.long
def test_every_part_starts_under_a_uid_without_a_name(
    kafka: Kafka, mosquitto: Mosquitto, spark_jars: Path, folder: Path
) -> None:
    cursor_key, lease_key, ops_key = (folder / f"{name}.key" for name in ("cursor", "lease", "ops"))
    texts = {
        cursor_key: secret_files.cursor_key(),
        lease_key: secret_files.lease_key(),
        ops_key: secret_files.ops_key(),
    }
    for path, text in texts.items():
        path.write_text(text)
        os.chown(path, UID, UID)
        path.chmod(0o600)
    access, push, ops = free_ports(3)
    where = {"kafka": {"bootstrap": kafka.bootstrap}}
    parts: dict[str, dict[str, object]] = {
        "bridge": {"name": "nameless-1", "mqtt": {"host": mosquitto.host, "port": mosquitto.port}}
        | where,
        "sequencer": {"name": "nameless-1"} | where,
        "analysis": {"data_dir": str(folder / "analysis"), "jars_dir": str(spark_jars)} | where,
        "access": {"name": "nameless-1", "port": access, "cursor_key_file": str(cursor_key)}
        | where,
        "push": {
            "name": "nameless-1",
            "port": push,
            "cursor_key_file": str(cursor_key),
            "lease_key_file": str(lease_key),
        }
        | where,
        "ops": {
            "port": ops,
            "data_dir": str(folder / "ops"),
            "key_file": str(ops_key),
            "access_urls": [f"http://127.0.0.1:{access}"],
        }
        | where,
    }
    with ExitStack() as stack:
        started = [
            stack.enter_context(running(name, settings, folder)) for name, settings in parts.items()
        ]
        for process, signs in started:
            wait_until(
                lambda process=process: (
                    "part.ready" in process.output() or not process.is_running()
                ),
                "it is ready",
            )  # type: ignore[misc]
            assert process.is_running(), process.output()[-2000:]
            assert Path(f"/proc/{process.pid}").stat().st_uid == UID
            received(signs)
            wait_until(
                lambda signs=signs: b"WATCHDOG=1" in received(signs),
                "its main loop gives signs of life",
            )  # type: ignore[misc]

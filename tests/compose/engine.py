"""An engine for deploy/compose.yaml: the one that runs, or one of our own where root may start it;
and its commands.

Nothing is pulled or built twice: images stay with the engine. Our own engine keeps them in the
folder COMPOSE_ENGINE, by default build/compose/engine.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from edgewake.deploy.programs import jars
from tests.services import Process, wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BUILD = ROOT / "build" / "compose"
PROJECT = "edgewake-test"
"""Its name keeps our containers, networks and volumes apart from those of an installation."""
SOCKET = Path("/tmp/edgewake-compose.sock")
OF_CONTAINERS = Path("/sys/fs/cgroup/cpu/docker")
"""The group that an engine puts its containers in."""
BUILD_S = 3000
"""Seconds for the images, Spark's 400 MB among them."""


class NoEngine(Exception):
    """The text is the reason."""


@contextmanager
def engine(log: Path) -> Iterator[str]:
    """The address of an engine, as DOCKER_HOST has it. Raises NoEngine."""
    if shutil.which("docker") is None:
        raise NoEngine(
            "no engine: docker is missing; on Debian `apt-get install docker.io docker-compose "
            "iptables`"
        )
    given = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if _answers(given):
        yield given
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise NoEngine(
            f"no engine answers at {given}, and only root can start one, where dockerd is installed"
        )
    folder = Path(os.environ.get("COMPOSE_ENGINE", BUILD / "engine"))
    folder.mkdir(parents=True, exist_ok=True)
    own = f"unix://{SOCKET}"
    words = [
        "dockerd",
        "--data-root",
        str(folder),
        "--exec-root",
        str(log.parent / "exec"),
        "-H",
        own,
    ]
    with Process([*words, "--pidfile", str(log.parent / "dockerd.pid")], log) as process:
        wait_until(lambda: _answers(own) or not process.is_running(), "the engine answers")
        if not process.is_running():
            raise NoEngine(f"dockerd ended: {process.output()[-1000:]}")
        _give_a_share_each()
        yield own


def _give_a_share_each() -> None:
    """All containers together otherwise get as much of a busy machine as one process that is in
    none: fourteen parts then never get as far as to greet Kafka in time. Where groups are those of
    version 1.
    """
    with suppress(OSError):
        OF_CONTAINERS.mkdir(exist_ok=True)
        (OF_CONTAINERS / "cpu.shares").write_text(str(1024 * len(services())))


def _answers(address: str) -> bool:
    done = subprocess.run(["docker", "-H", address, "info"], capture_output=True, check=False)
    return done.returncode == 0


class Site:
    """The services of compose.yaml on an engine. `folder` has the certificates."""

    def __init__(self, address: str, folder: Path) -> None:
        self.certificates = folder / "certs"
        self._folder = folder
        self._ids: list[str] = []
        self._environment = os.environ | {
            "DOCKER_HOST": address,
            "EDGEWAKE_UID": str(os.getuid() or 10001),
            "EDGEWAKE_GID": str(os.getgid() or 10001),
            "EDGEWAKE_CERTIFICATES": str(self.certificates),
        }
        self._compose = self._find_compose()

    def _find_compose(self) -> list[str]:
        """Compose 2 takes the file as it is.

        Compose 1, which Debian 12 has, does not know its name.
        """
        fixed = ["--project-name", PROJECT, "--project-directory", str(DEPLOY)]
        file = DEPLOY / "compose.yaml"
        if self._try("docker", "compose", "version"):
            program = ["docker", "compose"]
        elif self._try("docker-compose", "version"):
            program = ["docker-compose"]
            told = subprocess.run(
                ["docker-compose", "version", "--short"], capture_output=True, text=True, check=True
            ).stdout
            if told.startswith("1."):
                file = self._folder / "compose.yaml"
                lines = (DEPLOY / "compose.yaml").read_text("utf-8").splitlines(keepends=True)
                file.write_text(
                    "".join(line for line in lines if not line.startswith("name:")), "utf-8"
                )
        else:
            raise NoEngine("docker compose is missing; on Debian `apt-get install docker-compose`")
        return [*program, *fixed, "-f", str(file), *self._bounded_files()]

    def _bounded_files(self) -> list[str]:
        """A machine may forbid more open files than it has itself, to root as well; then the proxy
        gets as many.
        """
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["proxy"][
            "ulimits"
        ]["nofile"]
        if most == resource.RLIM_INFINITY or most >= wanted:
            return []
        override = self._folder / "override.yaml"
        override.write_text(
            yaml.safe_dump({"services": {"proxy": {"ulimits": {"nofile": most}}}}), "utf-8"
        )
        sys.stderr.write(
            f"compose: this machine allows {most} open files, so the proxy gets so many and not "
            f"{wanted}\n"
        )
        return ["-f", str(override)]

    def _try(self, *words: str) -> bool:
        try:
            return (
                subprocess.run(
                    words, capture_output=True, check=False, env=self._environment
                ).returncode
                == 0
            )
        except FileNotFoundError:
            return False

    # --- the whole --------------------------------------------------------------------------------

    def make_images(self) -> str:
        """Those of others, then ours from deploy/Dockerfile.

        What was made or pulled, a line each.
        """
        environment = self._environment | {
            "KAFKA_JARS": str(jars.ensure("kafka")),
            "COMPOSE_BUILD": str(BUILD),
        }
        script = ["sh", str(Path(__file__).with_name("images.sh"))]
        told = subprocess.run(
            script, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        assert told.returncode == 0, told.stderr[-3000:]
        for target, image in (
            ("servers", "edgewake"),
            ("lake", "edgewake-lake"),
            ("analysis", "edgewake-analysis"),
        ):
            self.docker(
                "build",
                "--target",
                target,
                "-t",
                image,
                "-f",
                str(DEPLOY / "Dockerfile"),
                str(ROOT),
                timeout_s=BUILD_S,
            )
        return told.stderr

    def up(self, within_s: float) -> None:
        """Start all services, those that need Kafka when it is healthy; they are not ready then.

        Compose gives up when one that others need is unhealthy once, as on a machine that is busy
        with something else; it is told again.
        """
        deadline = time.monotonic() + within_s
        while True:
            try:
                self.compose("up", "-d", "--no-build")
                return
            except AssertionError as error:
                if "unhealthy" not in str(error) or time.monotonic() > deadline:
                    raise
                sys.stderr.write("compose: one is not healthy yet; once more\n")

    def down(self) -> None:
        """Remove containers, networks and volumes."""
        self.compose("down", "--volumes", "--timeout", "15")

    def own_certificates(self) -> None:
        """Give them to whom the containers run as, where that is not us."""
        uid, gid = int(self._environment["EDGEWAKE_UID"]), int(self._environment["EDGEWAKE_GID"])
        if uid != os.getuid():
            for path in [self.certificates, *self.certificates.rglob("*")]:
                os.chown(path, uid, gid)

    def compose(self, *words: str) -> str:
        """A command of compose; AssertionError with what it says where it fails."""
        return self._run([*self._compose, *words], 600)

    def docker(self, *words: str, timeout_s: float = 120) -> str:
        """A command of docker."""
        return self._run(["docker", *words], timeout_s)

    def _run(self, command: Sequence[str], timeout_s: float) -> str:
        done = subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, (
            f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
        return done.stdout

    # --- its containers ---------------------------------------------------------------------------

    def containers(self) -> Mapping[str, Mapping[str, Any]]:
        """What the engine says of each service's container."""
        if not self._ids:  # they stay the same when the engine starts a container again
            self._ids = self.compose("ps", "-q", "-a").split()
        found = json.loads(self.docker("inspect", *self._ids))
        return {one["Config"]["Labels"]["com.docker.compose.service"]: one for one in found}

    def pid(self, service: str) -> int:
        """Of its first process, as this machine sees it."""
        return int(self.containers()[service]["State"]["Pid"])

    def health(self) -> Mapping[str, str]:
        """healthy, unhealthy or starting for those that run, else how they are."""
        states = {service: one["State"] for service, one in self.containers().items()}
        return {
            service: state["Health"]["Status"] if state["Running"] else state["Status"]
            for service, state in states.items()
        }

    def execute(self, service: str, *words: str) -> str:
        """A command inside a container."""
        return self.docker("exec", self.containers()[service]["Id"], *words)

    def logs(self, service: str) -> str:
        """The end of what it said."""
        command = ["docker", "logs", "--tail", "40", self.containers()[service]["Id"]]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr


def services() -> set[str]:
    """The names in the file."""
    return set(yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"])

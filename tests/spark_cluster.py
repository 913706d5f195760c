"""A real standalone cluster of Spark on the loopback, from the wheel of pyspark: a master, workers
of one core, each with a disk folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pyspark

from edgewake.deploy.programs import java
from tests.class_archives import SPARK_OPTIONS
from tests.services import Process, free_ports, port_is_open, wait_until, words_of

_DAEMON = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass
class Cluster:
    """A running cluster."""

    master: str
    """spark://host:port"""
    workers: list[Process]
    page: str
    """Address of the master's page."""

    def remove_applications(self) -> None:
        """As whoever looks at the master's page may: end all that runs."""
        page = httpx.get(self.page, timeout=30).text
        found = set(re.findall(r"app-\d+-\d+", page.partition("Completed Applications")[0]))
        assert found, page
        for application in found:
            answer = httpx.post(
                f"{self.page}/app/kill/", data={"id": application, "terminate": "true"}, timeout=30
            )
            assert answer.status_code < 400, answer.text

    def executors(self, worker: int) -> list[psutil.Process]:
        """Processes in which a worker computes now."""
        children = psutil.Process(self.workers[worker].pid).children()
        return [
            child for child in children if any(word.endswith(_EXECUTOR) for word in words_of(child))
        ]


def executor_options() -> str:
    """For `spark.executor.extraJavaOptions`: as quick to start as the driver."""
    return f"-XX:+UseSerialGC -Djava.io.tmpdir=. {os.environ.get(SPARK_OPTIONS, '')}".strip()


@contextmanager
def run_cluster(folder: Path, *, workers: int = 2, memory_mib: int = 512) -> Iterator[Cluster]:
    """Start it, and end all of it."""
    port, page = free_ports(2)
    master = _daemon(
        folder / "master", "master.Master", "--port", str(port), "--webui-port", str(page)
    )
    url = f"spark://127.0.0.1:{port}"
    started: list[Process] = []
    try:
        master.start()
        wait_until(lambda: port_is_open(port), "the master takes connections")
        for i in range(workers):
            own = folder / f"worker-{i}"
            options = (
                "--cores",
                "1",
                "--memory",
                f"{memory_mib}m",
                "--webui-port",
                "0",
                "--work-dir",
                str(own / "work"),
                url,
            )
            started.append(_daemon(own, "worker.Worker", *options))
            started[-1].start()
        for worker in started:
            worker.wait_for("Successfully registered with master")
        yield Cluster(url, started, f"http://127.0.0.1:{page}")
    finally:
        for process in (*started, master):
            process.stop()


def _daemon(folder: Path, name: str, *arguments: str) -> Process:
    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True)
    program = [
        str(java.ensure()),
        *_DAEMON,
        *os.environ.get(SPARK_OPTIONS, "").split(),
        "-cp",
        f"{home}/conf/:{home}/jars/*",
    ]
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(java.ensure().parents[1]),
    }
    # Else a worker looks for a source tree; bin/load-spark-env.sh does the same.
    environment |= {"SPARK_SCALA_VERSION": "2.13"}
    # What runs on executors is Java's alone: a Python there would not be found.
    environment |= {
        "PYSPARK_PYTHON": "/nonexistent/python",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    command = [*program, f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    return Process(command, folder / "log", env=environment, cwd=folder)

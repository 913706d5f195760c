"""The cache of jars: whole or absent, and one clear sentence where it cannot be had."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from edgewake.deploy import jars
from edgewake.deploy.jars import Jar
from edgewake.protocol.errors import LocalError, Unavailable
from tests.services import free_ports

SPARK = jars.read_lock()["spark"]


@contextmanager
def repository(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server that answers every GET by `answer`; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_request(self, *_: object) -> None:
            pass

        def log_error(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def ensure_from(address: str, root: Path) -> Path:
    """Download Spark's jars from a repository of the test."""
    return jars.ensure("spark", root=root, fetch=jars.fetch_with_jgo({"test": address}))


def left_behind(root: Path) -> list[Path]:
    """What a failed download left."""
    return list(root.iterdir())


def body(handler: BaseHTTPRequestHandler, declared: int, sent: bytes) -> None:
    """Answer with fewer bytes than declared, or not."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(declared))
    handler.end_headers()
    handler.wfile.write(sent)


def test_the_lock_names_what_the_classpaths_need() -> None:
    assert {jar.artifact for jar in SPARK} == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "scala-parallel-collections_2.13",
        "commons-pool2",
    }
    assert {"kafka_2.13", "kafka-clients", "scala-library", "log4j-slf4j-impl"} <= {jar.artifact for jar in jars.read_lock()["kafka"]}


def test_a_folder_holds_exactly_the_locked_jars(spark_jars: Path) -> None:
    assert sorted(path.name for path in spark_jars.iterdir()) == sorted(jar.filename for jar in SPARK)


def test_what_is_there_is_not_downloaded_again(spark_jars: Path) -> None:
    def fetch(_jar: Jar, _repository: Path, _came: Callable[[int], None]) -> Path:
        raise AssertionError("downloads")

    assert jars.ensure("spark", root=spark_jars.parent, fetch=fetch) == spark_jars


def test_no_network_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=r"^the jars of spark could not be downloaded: no connection .* is this machine online\?$"):
        ensure_from(f"http://127.0.0.1:{port}", tmp_path)
    assert left_behind(tmp_path) == []


def test_a_download_that_breaks_off_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        repository(lambda handler: body(handler, 1000, b"x" * 100)) as address,
        pytest.raises(Unavailable, match=r"^the jars of spark could not be downloaded: the download broke off .*; try again$"),
    ):
        ensure_from(address, tmp_path)
    assert left_behind(tmp_path) == []


def test_a_file_that_came_damaged_is_not_kept(tmp_path: Path) -> None:
    with (
        repository(lambda handler: body(handler, 3, b"bad")) as address,
        pytest.raises(Unavailable, match=r"could not be downloaded: .*\.jar came damaged; try again"),
    ):
        ensure_from(address, tmp_path)
    assert left_behind(tmp_path) == []


def test_a_repository_without_the_file_is_said(tmp_path: Path) -> None:
    with (
        repository(lambda handler: handler.send_error(404)) as address,
        pytest.raises(Unavailable, match=r"Artifact .* not found; is a proxy in between\?"),
    ):
        ensure_from(address, tmp_path)


def test_no_space_is_said_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"^the jars of spark could not be downloaded to .*: 74 MiB are needed, 5 MiB are free$"):
        jars.ensure("spark", root=tmp_path, free=lambda _path: 5 << 20)


def test_a_disk_that_fills_up_meanwhile_is_said(tmp_path: Path) -> None:
    def fetch(_jar: Jar, _repository: Path, _came: Callable[[int], None]) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(LocalError, match="No space left on device"):
        jars.ensure("spark", root=tmp_path, fetch=fetch)
    assert left_behind(tmp_path) == []


def test_a_folder_that_lost_a_jar_is_made_anew(tmp_path: Path, spark_jars: Path) -> None:
    def fetch(jar: Jar, repository: Path, came: Callable[[int], None]) -> Path:
        repository.mkdir(exist_ok=True)
        copy = repository / jar.filename
        copy.write_bytes((spark_jars / jar.filename).read_bytes())
        came(jar.size)
        return copy

    seen: list[tuple[int, int]] = []
    folder = jars.ensure("spark", root=tmp_path, fetch=fetch)
    (folder / SPARK[0].filename).unlink()
    assert jars.ensure("spark", root=tmp_path, fetch=fetch, progress=lambda *now: seen.append(now)) == folder
    assert len(list(folder.iterdir())) == len(SPARK)
    assert max(seen)[0] == max(seen)[1] == sum(jar.size for jar in SPARK)

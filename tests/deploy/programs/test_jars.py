"""The cache of jars: whole or absent, and one clear sentence where it cannot be had."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgewake.deploy.programs import jars
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


def ensure_from(address: str, root: Path, **more: Any) -> Path:
    """Download Spark's jars from a repository of the test."""
    return jars.ensure("spark", root=root, address=address, **more)


def left_behind(root: Path) -> list[str]:
    """What a reader of the cache could take for jars."""
    return [path.name for path in root.iterdir() if not path.name.startswith(".")]


def body(handler: BaseHTTPRequestHandler, declared: int, sent: bytes, status: int = 200) -> None:
    """Answer with fewer bytes than declared, or not."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(declared))
    handler.end_headers()
    handler.wfile.write(sent)


class Mirror:
    """Serves the real jars; a request after the first `cut_after` bytes of a file finds the
    connection broken.
    """

    def __init__(
        self, folder: Path, *, cut_after: int | None = None, knows_ranges: bool = True
    ) -> None:
        self.files = {f"/{jar.path}": (folder / jar.filename).read_bytes() for jar in SPARK}
        self.cut_after = cut_after
        self.knows_ranges = knows_ranges
        self.ranges: list[str] = []

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        data, wanted = self.files[handler.path], handler.headers.get("Range")
        first = 0
        if wanted is not None:
            self.ranges.append(wanted)
            first = int(wanted.removeprefix("bytes=").removesuffix("-")) if self.knows_ranges else 0
        rest = data[first:]
        body(
            handler,
            len(rest),
            rest if self.cut_after is None else rest[: self.cut_after],
            206 if first else 200,
        )


def test_a_folder_holds_exactly_the_locked_jars(spark_jars: Path) -> None:
    assert sorted(path.name for path in spark_jars.iterdir()) == sorted(
        jar.filename for jar in SPARK
    )


def test_what_is_there_is_not_downloaded_again(spark_jars: Path) -> None:
    (port,) = free_ports(1)
    assert ensure_from(f"http://127.0.0.1:{port}", spark_jars.parent) == spark_jars


def test_a_mirror_serves_them_and_each_byte_is_told(tmp_path: Path, spark_jars: Path) -> None:
    seen: list[tuple[int, int]] = []
    with repository(Mirror(spark_jars)) as address:
        folder = ensure_from(address, tmp_path, progress=lambda *now: seen.append(now))
    assert sorted(path.name for path in folder.iterdir()) == sorted(jar.filename for jar in SPARK)
    assert max(seen) == (sum(jar.size for jar in SPARK),) * 2


def test_a_download_that_broke_off_goes_on_where_it_was(tmp_path: Path, spark_jars: Path) -> None:
    mirror = Mirror(spark_jars, cut_after=50_000)
    with repository(mirror) as address:
        with pytest.raises(
            Unavailable,
            match=r"^the jars of spark could not be downloaded: the download broke off .*; try "
            r"again$",
        ):
            ensure_from(address, tmp_path)
        assert left_behind(tmp_path) == []
        assert mirror.ranges == []
        mirror.cut_after = None
        ensure_from(address, tmp_path)
    assert mirror.ranges
    assert set(mirror.ranges) == {"bytes=50000-"}


def test_a_server_that_ignores_where_to_go_on_is_read_from_the_start(
    tmp_path: Path, spark_jars: Path
) -> None:
    mirror = Mirror(spark_jars, cut_after=50_000, knows_ranges=False)
    with repository(mirror) as address:
        with pytest.raises(Unavailable):
            ensure_from(address, tmp_path)
        mirror.cut_after = None
        assert len(list(ensure_from(address, tmp_path).iterdir())) == len(SPARK)


def test_no_network_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(
        Unavailable,
        match=r"^the jars of spark could not be downloaded: no connection .* is this machine "
        r"online\?$",
    ):
        ensure_from(f"http://127.0.0.1:{port}", tmp_path)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("size", [3, 20 << 20], ids=["short", "longer than locked"])
def test_a_file_that_is_not_the_locked_one_is_refused(tmp_path: Path, size: int) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        with suppress(ConnectionError):  # the client leaves once it has seen too much
            body(handler, size, bytes(size))

    with (
        repository(answer) as address,
        pytest.raises(
            Unavailable,
            match=r"could not be downloaded: .*\.jar is not the file of the lock; try again",
        ),
    ):
        ensure_from(address, tmp_path)
    assert left_behind(tmp_path) == []
    assert not any(
        path.stat().st_size > max(jar.size for jar in SPARK) for path in tmp_path.rglob("*.part")
    )


def test_a_repository_without_the_file_is_named(tmp_path: Path) -> None:
    with (
        repository(lambda handler: handler.send_error(404)) as address,
        pytest.raises(
            Unavailable, match=r"\.jar was answered with HTTP status 404; is a proxy in between\?"
        ),
    ):
        ensure_from(address, tmp_path)


def test_no_space_is_noticed_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(
        LocalError,
        match=r"^the jars of spark could not be downloaded to .*: 77 MiB are needed, 5 MiB are "
        r"free$",
    ):
        jars.ensure("spark", root=tmp_path, free=lambda _path: 5 << 20)


def test_a_folder_that_lost_a_jar_is_made_anew(tmp_path: Path, spark_jars: Path) -> None:
    with repository(Mirror(spark_jars)) as address:
        folder = ensure_from(address, tmp_path)
        (folder / SPARK[0].filename).unlink()
        assert ensure_from(address, tmp_path) == folder
    assert len(list(folder.iterdir())) == len(SPARK)


def test_two_at_once_download_once(tmp_path: Path, spark_jars: Path) -> None:
    asked: list[str] = []
    mirror = Mirror(spark_jars)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        mirror(handler)

    with repository(answer) as address, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: ensure_from(address, tmp_path), range(2))
    assert first == second
    assert sorted(asked) == sorted(mirror.files)

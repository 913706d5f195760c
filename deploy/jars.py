"""The jars of Kafka and of Spark's Kafka connector, in a cache that all runs of this user share.

`ensure("kafka")` gives a folder that holds exactly the jars of `jars.lock`, each checked against its SHA-256. A folder appears by one
rename, so it is whole or absent, also after a kill in the middle and with two processes at once. Downloads go through jgo, which knows
where Maven artifacts live; nothing is resolved here: the lock, made by `python -m deploy.jars_lock`, says what is needed.

Raises Unavailable where a download fails and LocalError where the disk refuses; the text is one sentence for the user.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Final, TypeAlias

from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import LocalError, Unavailable

LOCK: Final = Path(__file__).with_name("jars.lock")
DOWNLOADS_AT_ONCE: Final = 4
"""Parallel downloads: one alone leaves a fast line idle between files, many more are rude to the server."""
TIMEOUT_S: Final = 20
"""Seconds without a byte before a download counts as broken."""
SPARE_BYTES: Final = 64 << 20
"""Free bytes wanted beyond the jars themselves."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) while a download runs, from several threads."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        """Its name in a folder of jars."""
        return f"{self.artifact}-{self.version}.jar"


def read_lock(path: Path = LOCK) -> Mapping[str, tuple[Jar, ...]]:
    """The jars of each set, e.g. kafka. Lines: set, group:artifact:version, bytes, sha256."""
    sets: dict[str, tuple[Jar, ...]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, coordinate, size, sha256 = line.split()
            group, artifact, version = coordinate.split(":")
            sets[name] = (*sets.get(name, ()), Jar(group, artifact, version, int(size), sha256))
    return sets


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """EDGEWAKE_CACHE, else edgewake/ in the user's cache folder."""
    if chosen := environ.get("EDGEWAKE_CACHE"):
        return Path(chosen)
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewake"


def folder(name: str, *, root: Path | None = None) -> Path:
    """Where a set lives once it is there; another lock means another folder."""
    jars = read_lock()[name]
    stamp = blake2b("".join(jar.sha256 for jar in jars).encode(), digest_size=5).hexdigest()
    return (root or cache_root()) / f"{name}-jars-{stamp}"


def free_bytes(path: Path) -> int:
    """Free bytes of the disk that holds `path`."""
    return shutil.disk_usage(path).free


def ensure(
    name: str,
    *,
    root: Path | None = None,
    progress: Progress | None = None,
    fetch: Fetch | None = None,
    free: Callable[[Path], int] = free_bytes,
) -> Path:
    """The folder with the jars of a set, downloaded first where it is not there."""
    target = folder(name, root=root)
    jars = read_lock()[name]
    if _is_whole(target, jars):
        return target
    with _said_in_one_sentence(name, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_space(free(target.parent), sum(jar.size for jar in jars))
        _sweep(target.parent)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as incoming:
            _download(jars, Path(incoming), progress or (lambda _done, _all: None), fetch or fetch_with_jgo())
            _put_in_place(Path(incoming) / "jars", target, jars)
    return target


def _is_whole(target: Path, jars: tuple[Jar, ...]) -> bool:
    return all((target / jar.filename).is_file() and (target / jar.filename).stat().st_size == jar.size for jar in jars)


def _sweep(root: Path) -> None:
    """Remove what a killed download left a day ago; a younger one may still run."""
    for path in root.glob(".*-*"):
        if path.stat().st_mtime < SystemClock().now_ms() / 1000 - 86_400:
            shutil.rmtree(path, ignore_errors=True)


def _check_space(free: int, size: int) -> None:
    if free < size + SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"{(size + SPARE_BYTES) >> 20} MiB are needed, {free >> 20} MiB are free")


Fetch: TypeAlias = Callable[[Jar, Path, Callable[[int], None]], Path]
"""Brings one jar below a folder, telling bytes as they come, and returns its path."""


def _download(jars: tuple[Jar, ...], incoming: Path, progress: Progress, fetch: Fetch) -> None:
    """Fill `incoming`/jars; the first failure cancels what has not begun and is raised."""
    (incoming / "jars").mkdir()
    total, done = sum(jar.size for jar in jars), 0

    def came(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    def bring(jar: Jar) -> None:
        path = fetch(jar, incoming / "repository", came)
        with path.open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != jar.sha256:
                raise BrokenDownload(f"{jar.filename} came damaged")
        path.rename(incoming / "jars" / jar.filename)

    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE, thread_name_prefix="jars") as pool:
        try:
            list(pool.map(bring, sorted(jars, key=lambda jar: -jar.size)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class BrokenDownload(Exception):
    """A file came that is not the one of the lock."""


def fetch_with_jgo(repositories: Mapping[str, str] | None = None) -> Fetch:
    """Downloads through jgo; `repositories` (name to address) instead of Maven Central."""
    from jgo.maven import MavenContext
    from jgo.maven._resolver import PythonResolver

    def fetch(jar: Jar, repository: Path, came: Callable[[int], None]) -> Path:
        @contextmanager
        def listen(_filename: str, _size: int) -> Iterator[Callable[[int], None]]:
            yield came

        resolver = PythonResolver(progress_callback=listen)
        context = MavenContext(resolver=resolver, repo_cache=repository, remote_repos=repositories, timeout=TIMEOUT_S)
        return Path(context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve())

    return fetch


def _put_in_place(ready: Path, target: Path, jars: tuple[Jar, ...]) -> None:
    """Rename; another process that was faster brought the same files, and a damaged folder of before goes first."""
    if target.exists() and not _is_whole(target, jars):
        target.rename(ready.parent / "damaged")
    try:
        ready.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


@contextmanager
def _said_in_one_sentence(name: str, root: Path) -> Iterator[None]:
    """Turn what jgo, requests and the disk raise into our errors."""
    import requests

    what = f"the jars of {name} could not be downloaded"
    try:
        yield
    except BrokenDownload as error:
        raise Unavailable(f"{what}: {error}; try again") from error
    except RuntimeError as error:
        # What jgo raises where no repository has a file.
        raise Unavailable(f"{what}: {str(error).partition(' in remote')[0]}; is a proxy in between?") from error
    except requests.ConnectionError as error:
        raise Unavailable(f"{what}: no connection to the repository of Maven artifacts; is this machine online?") from error
    except requests.RequestException as error:
        raise Unavailable(f"{what}: the download broke off ({type(error).__name__}); try again") from error
    except OSError as error:
        raise LocalError(f"{what} to {root}: {error.strerror or error}") from error

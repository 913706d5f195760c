"""The jars of Kafka and of Spark's Kafka connector, in a cache that all runs of this user share.

`ensure("kafka")` gives a folder that holds exactly the jars of `jars.lock`, each checked against
its SHA-256. A folder appears by one rename, so it is whole or absent, also after a kill in the
middle and with two processes at once; what a broken download brought is kept beside it, and the
next one goes on there. Nothing is resolved: the lock, made by `python -m
edgewake.deploy.programs.jars_lock`, has the coordinates, and with the hashes it makes no
difference which server the bytes come from.

Raises Unavailable where a download fails and LocalError where the disk refuses; the text is one
sentence for the user.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from edgewake.deploy.data_folder import free_bytes
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import LocalError, Unavailable

if TYPE_CHECKING:
    import httpx

LOCK: Final = Path(__file__).parents[1] / "jars.lock"
DOWNLOADS_AT_ONCE: Final = 4
"""Parallel downloads: one alone leaves a fast line idle between files, many more are rude to the
server."""
TIMEOUT_S: Final = 20
"""Seconds without a byte before a download counts as broken."""
SPARE_BYTES: Final = 64 << 20
"""Free bytes wanted beyond the jars themselves."""
PARTIAL_S: Final = 86_400
"""Seconds after which what a broken download brought is removed."""

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

    @property
    def path(self) -> str:
        """Where a repository in Maven's layout has it, below the repository's address."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.filename}"


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


def repository(environ: Mapping[str, str] = os.environ) -> str:
    """Address of the repository: EDGEWAKE_MAVEN, e.g. a mirror, else Maven's. Raises LocalError."""
    if chosen := environ.get("EDGEWAKE_MAVEN"):
        return chosen.rstrip("/")
    try:
        from jgo.constants import MAVEN_CENTRAL_URL
    except ModuleNotFoundError as error:
        raise LocalError(
            "EDGEWAKE_MAVEN is not set: expected the address of a repository of Maven artifacts"
        ) from error
    return str(MAVEN_CENTRAL_URL).rstrip("/")


def folder(name: str, *, root: Path | None = None, lock: Path = LOCK) -> Path:
    """Where a set lives once it is there; another lock means another folder."""
    jars = read_lock(lock)[name]
    stamp = blake2b("".join(jar.sha256 for jar in jars).encode(), digest_size=5).hexdigest()
    return (root or cache_root()) / f"{name}-jars-{stamp}"


def is_there(name: str) -> bool:
    """Is a set complete in the cache?"""
    return _is_whole(folder(name), read_lock()[name])


def ensure(
    name: str,
    *,
    root: Path | None = None,
    progress: Progress | None = None,
    address: str | None = None,
    free: Callable[[Path], int] = free_bytes,
    lock: Path = LOCK,
) -> Path:
    """The folder with the jars of a set, downloaded first where it is not there.

    `address`: instead of `repository()`; `lock`: of other sets than ours.
    """
    target = folder(name, root=root, lock=lock)
    jars = read_lock(lock)[name]
    if _is_whole(target, jars):
        return target
    with _in_one_sentence(name, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        with _alone(target.with_name(f".{target.name}.lock")):
            if not _is_whole(target, jars):
                incoming = target.with_name(f".{target.name}.partial")
                incoming.mkdir(exist_ok=True)
                missing = sum(jar.size for jar in jars) - sum(
                    path.stat().st_size for path in incoming.iterdir()
                )
                _check_space(free(target.parent), missing)
                _download(
                    jars, incoming, progress or (lambda _done, _all: None), address or repository()
                )
                _move_to(target, incoming)
    return target


def _is_whole(target: Path, jars: tuple[Jar, ...]) -> bool:
    return all(
        (target / jar.filename).is_file() and (target / jar.filename).stat().st_size == jar.size
        for jar in jars
    )


def _sweep(root: Path) -> None:
    """Remove what was begun PARTIAL_S ago and never finished."""
    for path in root.glob(".*.partial"):
        if path.stat().st_mtime < SystemClock().now_ms() / 1000 - PARTIAL_S:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process alone; a second one waits, and finds the folder there.

    The lock ends with its process.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_space(free: int, size: int) -> None:
    if free < size + SPARE_BYTES:
        raise OSError(
            errno.ENOSPC, f"{(size + SPARE_BYTES) >> 20} MiB are needed, {free >> 20} MiB are free"
        )


class BrokenDownload(Exception):
    """What came is not what the lock names; the text says what came."""


def _download(jars: tuple[Jar, ...], incoming: Path, progress: Progress, address: str) -> None:
    """Fill `incoming`; the first failure cancels what has not begun and is raised."""
    import httpx

    total, done = sum(jar.size for jar in jars), 0

    def came(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    with (
        httpx.Client(base_url=address, timeout=TIMEOUT_S, follow_redirects=True) as client,
        ThreadPoolExecutor(DOWNLOADS_AT_ONCE, thread_name_prefix="jars") as pool,
    ):
        try:
            list(
                pool.map(
                    lambda jar: _fetch(client, jar, incoming, came),
                    sorted(jars, key=lambda jar: -jar.size),
                )
            )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _fetch(client: httpx.Client, jar: Jar, incoming: Path, came: Callable[[int], None]) -> None:
    """Bring one jar, going on after the bytes that are there.

    Raises BrokenDownload, httpx.HTTPError or OSError.
    """
    path, part = incoming / jar.filename, incoming / f"{jar.filename}.part"
    if path.exists():
        came(jar.size)
        return
    have = part.stat().st_size if part.exists() else 0
    with client.stream(
        "GET", jar.path, headers={"Range": f"bytes={have}-"} if have else {}
    ) as answer:
        if answer.status_code not in (200, 206):
            raise BrokenDownload(
                f"{jar.filename} was answered with HTTP status {answer.status_code}; is a proxy "
                "in between?"
            )
        resumes = answer.status_code == 206
        have = have if resumes else 0
        came(have)
        with part.open("ab" if resumes else "wb") as file:
            for chunk in answer.iter_bytes():
                have += len(chunk)
                if have > jar.size:
                    break
                file.write(chunk)
                came(len(chunk))
    with part.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != jar.sha256:
            part.unlink()
            raise BrokenDownload(f"{jar.filename} is not the file of the lock; try again")
    part.rename(path)


def _move_to(target: Path, incoming: Path) -> None:
    """Rename; a damaged folder of before goes first."""
    if target.exists():
        shutil.rmtree(target)
    incoming.rename(target)


@contextmanager
def _in_one_sentence(name: str, root: Path) -> Iterator[None]:
    """Turn what httpx and the disk raise into our errors."""
    import httpx

    what = f"the jars of {name} could not be downloaded"
    try:
        yield
    except BrokenDownload as error:
        raise Unavailable(f"{what}: {error}") from error
    except httpx.ConnectError as error:
        raise Unavailable(
            f"{what}: no connection to the repository of Maven artifacts; is this machine online?"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(
            f"{what}: the download broke off ({type(error).__name__}); try again"
        ) from error
    except OSError as error:
        raise LocalError(f"{what} to {root}: {error.strerror or error}") from error

"""Installs what tests and benchmarks need beyond Python: Java, Mosquitto, nginx with nchan,
Chromium, Node with its packages, an OpenTelemetry Collector, the jars.

It makes the archives of classes, too. Where the disk has no room for all this and for what tests
write, it says so at once.

`python -m tests.needs`; with apt where we are root, elsewhere one line says what to install.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
from hypothesis import strategies as st

from edgewake.deploy.data_folder import FreeBytes, free_bytes
from edgewake.deploy.programs import apt, jars, java, mosquitto
from edgewake.protocol.errors import EdgewakeError, LocalError
from tests import class_archives, java_lint
from tests.bridge.micropython import interpreter as micropython
from tests.bridge.thingsboard import library as library_of_thingsboard
from tests.traces import collector

JS = Path(__file__).with_name("js")
NGINX_MODULES = Path("/usr/lib/nginx/modules")
"""Where Debian's packages put them."""
DISK_BYTES_MIN: Final = 3 << 30
"""Free bytes wanted: tests fill up to 2 GiB, most of it with Kafkas, and each `edgewake up` among
them wants one to be free."""


def room(folders: Iterable[Path], *, free: FreeBytes = free_bytes) -> None:
    """Have the disks of these folders room? Otherwise hundreds of tests fail after ten minutes,
    each in another way. Raises LocalError.
    """
    for folder in folders:
        if (bytes_free := free(folder)) < DISK_BYTES_MIN:
            raise LocalError(
                f"the disk of {folder} has {bytes_free >> 20} MiB free, tests need "
                f"{DISK_BYTES_MIN >> 20} MiB; make room, or name a folder on another disk for "
                "what tests write: TMPDIR=/path make test"
            )


def found(names: tuple[str, ...]) -> Path | None:
    """The first of the programs `names`, also where Debian puts servers, and no PATH but root's."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return next((Path(one) for name in names if (one := shutil.which(name, path=path))), None)


def program(names: tuple[str, ...], packages: tuple[str, ...], what: str) -> Path:
    """One of the programs `names`, else Debian's package. Raises LocalError."""
    if found(names) is None:
        apt.install(packages, what=what)
    if (installed := found(names)) is None:
        raise LocalError(
            f"{what} was installed and none of {', '.join(names)} is on PATH or in /usr/sbin"
        )
    return installed


def library(name: str, package: str, what: str) -> None:
    """A shared library that the loader finds, else Debian's package."""
    try:
        ctypes.CDLL(name)
    except OSError:
        apt.install((package,), what=what)


def nginx_module(name: str, package: str, what: str) -> None:
    """A module of nginx, else Debian's package."""
    if not (NGINX_MODULES / name).exists():
        apt.install((package,), what=what)


def nginx_with_nchan() -> Path:
    """nginx, and the module nchan for it. Raises LocalError."""
    nginx = program(("nginx",), ("nginx-light",), "nginx")
    nginx_module(
        "ngx_nchan_module.so",
        "libnginx-mod-nchan",
        "nchan, a rival in the benchmark of event streams",
    )
    return nginx


def javascript() -> None:
    """The locked packages of tests/js, where they are not there or older than their lock."""
    lock, stamp = JS / "package-lock.json", JS / "node_modules" / ".package-lock.json"
    if not lock.exists() or (stamp.exists() and stamp.stat().st_mtime >= lock.stat().st_mtime):
        return
    done = subprocess.run(
        ["npm", "ci", "--silent", "--no-audit", "--no-fund"],
        cwd=JS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalError(
            f"npm ci in {JS} ended with {done.returncode}: "
            f"{(done.stderr or done.stdout).strip()[-300:]}"
        )
    stamp.touch()


def characters() -> None:
    """Hypothesis's tables of characters, which it keeps in .hypothesis: otherwise each test process
    works them out at the same time.
    """
    st.text().validate()


def _collector() -> None:
    """It is one test's: where its modules cannot be had, that one is skipped and says so."""
    try:
        collector.ensured()
    except EdgewakeError as error:
        click.echo(f"no test of traces: {error}", err=True)


def main() -> None:
    """All of it."""
    try:
        room((Path.cwd(), Path(tempfile.gettempdir())))
        java.ensure()
        java_lint.ensured()
        mosquitto.ensure()
        program(("chromium",), ("chromium",), "Chromium")
        program(("node",), ("nodejs",), "Node.js")
        program(("npm",), ("npm",), "npm")
        program(("openssl",), ("openssl",), "OpenSSL")
        nginx_with_nchan()
        program(("curl",), ("curl",), "curl")
        program(("mosquitto_pub",), ("mosquitto-clients",), "mosquitto_pub")
        program(("g++",), ("g++",), "g++, for the sketch of docs/plain-devices.md")
        library("libmosquitto.so", "libmosquitto-dev", "libmosquitto, which the sketch is built on")
        program(("promtool",), ("prometheus",), "promtool, which checks alarms and metrics")
        program(("git",), ("git",), "git")
        program(("systemd-analyze",), ("systemd",), "systemd-analyze")
        program(("strace",), ("strace",), "strace")
        program(("mkfs.ext4",), ("e2fsprogs",), "mkfs.ext4")
        program(("mkfs.xfs",), ("xfsprogs",), "mkfs.xfs")
        program(("setpriv",), ("util-linux",), "setpriv")
        library("libnss_wrapper.so", "libnss-wrapper", "libnss_wrapper, as the image has it")
        javascript()
        _collector()
        library_of_thingsboard.ensured()
        if micropython.IS_MADE_FOR_US:
            micropython.ensured()
        characters()
        for name in jars.read_lock():
            jars.ensure(name)
        class_archives.ensure()
    except EdgewakeError as error:
        click.echo(f"make test: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""All that an installation, its page and its tests are made of, as the locks have it.

Files are read, nothing is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.deploy.programs import jars
from edgewake.protocol.errors import LocalError

_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
DEVELOPMENT: Final = ("test", "build", "audit")
"""Sets that no installation has."""


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One locked package. `ecosystem`: pypi, npm or maven. `group` is Maven's, else empty."""

    ecosystem: str
    group: str
    name: str
    version: str
    hashes: tuple[str, ...] = ()
    """SHA-256 of each file that the lock allows."""
    licence: str = ""
    """What the lock itself says of it; most say nothing."""
    is_shipped: bool = True
    """Is it a part of an installation, or only of its tests and tools?"""

    @property
    def key(self) -> str:
        """E.g. `pypi:click` or `maven:org.yaml/snakeyaml`: how accepted.toml names it."""
        return (
            f"{self.ecosystem}:{self.group}/{self.name}"
            if self.group
            else f"{self.ecosystem}:{self.name}"
        )


def all_of(root: Path) -> list[Component]:
    """Everything that the checkout at `root` locks, each once.

    Raises LocalError where a lock cannot be read.
    """
    try:
        found = [*_python(root), *_jars(root), *_javascript(root), *_page(root)]
    except (OSError, ValueError, KeyError) as error:
        raise LocalError(
            f"a lock cannot be read: {error}; is {root} a checkout of Edgewake?"
        ) from error
    merged: dict[tuple[str, str, str], Component] = {}
    for one in found:
        known = merged.get((one.key, one.version, ""))
        if known is None or (one.is_shipped and not known.is_shipped):
            merged[one.key, one.version, ""] = one
    return sorted(merged.values())


def requirement_files(root: Path) -> Mapping[str, Path]:
    """The locks of Python's packages, by the names of their sets."""
    return {path.stem: path for path in sorted((root / "deploy" / "requirements").glob("*.txt"))}


def _python(root: Path) -> Iterator[Component]:
    for name, path in requirement_files(root).items():
        for block in path.read_text("utf-8").replace("\\\n", " ").splitlines():
            if found := _REQUIREMENT.match(block):
                hashes = tuple(_HASH.findall(block))
                yield Component(
                    "pypi",
                    "",
                    found[1].lower(),
                    found[2],
                    hashes,
                    is_shipped=name not in DEVELOPMENT,
                )


def _jars(root: Path) -> Iterator[Component]:
    for found in jars.read_lock(root / "deploy" / "jars.lock").values():
        for jar in found:
            yield Component("maven", jar.group, jar.artifact, jar.version, (jar.sha256,))


def _javascript(root: Path) -> Iterator[Component]:
    lock = json.loads((root / "tests" / "js" / "package-lock.json").read_text("utf-8"))
    for place, told in lock["packages"].items():
        if place:
            name = place.rpartition("node_modules/")[2]
            yield Component(
                "npm", "", name, told["version"], licence=told.get("license", ""), is_shipped=False
            )


def _page(root: Path) -> Iterator[Component]:
    for told in json.loads(
        (root / "cloud" / "page" / "vendor" / "manifest.json").read_text("utf-8")
    ):
        yield Component(
            "npm", "", told["name"], told["version"], tuple(told["files"].values()), told["license"]
        )

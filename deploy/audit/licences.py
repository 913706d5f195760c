"""Under which licence a component comes, and whether that was accepted.

It is asked from what is installed or fetched here: metadata of Python's packages, the lock of
JavaScript's, and each jar's own files.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from edgewake.deploy.audit.accepted import Accepted
from edgewake.deploy.audit.locked import Component

SPDX: Final[Mapping[str, str]] = {
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license v2": "Apache-2.0",
    "the apache license, version 2.0": "Apache-2.0",
    "the apache software license, version 2.0": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "gnu lesser general public license v3 or later (lgplv3+)": "LGPL-3.0-or-later",
    "mit license": "MIT",
    "the mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "public domain": "LicenseRef-Public-Domain",
    "public domain, per creative commons cc0": "CC0-1.0",
    "python software foundation license": "PSF-2.0",
}
"""What people write → the name in the list of SPDX."""
_ADDRESSES: Final = {
    "apache.org/licenses/license-2": "Apache-2.0",
    "mit-license": "MIT",
    "bsd-2-clause": "BSD-2-Clause",
}
_NO_LICENCE: Final = ("DFSG approved", "OSI Approved")
_TEXT_BYTES: Final = 2000
"""The bytes of a file LICENSE that are read: its title is in them."""


def of(
    component: Component,
    installed: Mapping[str, metadata.Distribution],
    jar_files: Mapping[str, Path],
) -> str:
    """An expression of SPDX, or "" where nothing says it."""
    if component.licence:
        return component.licence
    if component.ecosystem == "pypi" and (
        distribution := installed.get(component.name.replace("_", "-"))
    ):
        return _of_distribution(distribution)
    if component.ecosystem == "maven" and (
        jar := jar_files.get(f"{component.name}-{component.version}.jar")
    ):
        return _of_jar(jar)
    return ""


def installed_here() -> dict[str, metadata.Distribution]:
    """By name, with - for _ and in small letters."""
    return {
        re.sub(r"[-_.]+", "-", one.name).lower(): one
        for one in metadata.distributions()
        if one.metadata["Name"]
    }


def judge(expression: str, component: Component, accepted: Accepted) -> str:
    """What is wrong; empty where it is accepted."""
    for entry in accepted.licence:
        if entry.component == component.key:
            return (
                ""
                if expression in ("", entry.licence)
                else f"is {expression} now, accepted.toml says {entry.licence}"
            )
    if not expression:
        return "says nowhere under which licence it is"
    return (
        ""
        if all(_is_allowed(part, accepted.licences) for part in expression.split(" AND "))
        else f"is {expression}, which is not accepted"
    )


def _is_allowed(part: str, allowed: Iterable[str]) -> bool:
    return any(name.strip(" ()") in allowed for name in part.split(" OR "))


def _of_distribution(distribution: metadata.Distribution) -> str:
    told = distribution.metadata.json
    if expression := str(told.get("license_expression", "")):
        return expression
    names = [
        line.rpartition(" :: ")[2]
        for line in told.get("classifier", [])
        if line.startswith("License ::")
    ]
    found = sorted({_spdx(name) for name in names if name not in _NO_LICENCE})
    return (
        " OR ".join(found)
        if found
        else _spdx(str(told.get("license", "")).strip().partition("\n")[0])
    )


def _of_jar(path: Path) -> str:
    with zipfile.ZipFile(path) as jar:
        names = jar.namelist()
        texts = [
            jar.read(name).decode("utf-8", "replace") for name in names if name.endswith("/pom.xml")
        ]
        of_poms = [
            name
            for text in texts
            for name in re.findall(r"<license>\s*<name>(.*?)</name>", text, re.DOTALL)
        ]
        if of_poms:
            return " OR ".join(sorted({_spdx(name.strip()) for name in of_poms}))
        if "META-INF/MANIFEST.MF" in names:
            lines = (
                jar.read("META-INF/MANIFEST.MF")
                .decode("utf-8", "replace")
                .replace("\r\n ", "")
                .splitlines()
            )
            told = next((line for line in lines if line.startswith("Bundle-License:")), "").lower()
            if found := next((name for address, name in _ADDRESSES.items() if address in told), ""):
                return found
        files = [name for name in names if re.fullmatch(r"(META-INF/)?LICENSE(\.txt)?", name)]
        title = jar.read(files[0])[:_TEXT_BYTES].decode("utf-8", "replace") if files else ""
    return "Apache-2.0" if re.search(r"Apache License\s+Version 2\.0", title) else ""


def _spdx(text: str) -> str:
    return SPDX.get(text.lower(), text)

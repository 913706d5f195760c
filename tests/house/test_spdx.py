"""Each file has an owner and a licence that REUSE.toml names, and what is carried along keeps its
own.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from tests.house.source import ROOT, files

VENDOR = Path("cloud/page/vendor")


def annotations() -> list[dict[str, str]]:
    """The entries, in their order."""
    read: list[dict[str, str]] = tomllib.loads((ROOT / "REUSE.toml").read_text("utf-8"))[
        "annotations"
    ]
    return read


def covers(entry: dict[str, str], path: Path) -> bool:
    """`**` is any number of folders."""
    return (
        re.fullmatch(re.escape(entry["path"]).replace(r"\*\*", ".*"), path.as_posix()) is not None
    )


def licence_of(path: Path) -> str:
    """Of a file, as REUSE has it: the last entry that fits."""
    return next(
        entry["SPDX-License-Identifier"] for entry in reversed(annotations()) if covers(entry, path)
    )


def test_every_file_has_an_owner_and_a_licence_whose_text_is_here() -> None:
    for path in files():
        assert (ROOT / "LICENSES" / f"{licence_of(path)}.txt").read_text("utf-8"), path
    assert all(entry["SPDX-FileCopyrightText"] for entry in annotations())


def test_no_text_of_a_licence_is_here_that_no_file_has() -> None:
    assert {path.stem for path in (ROOT / "LICENSES").iterdir()} == {
        licence_of(path) for path in files()
    }


def test_what_the_page_carries_along_keeps_the_licence_that_its_manifest_names() -> None:
    told = {
        one["name"]: one["license"]
        for one in json.loads((ROOT / VENDOR / "manifest.json").read_text("utf-8"))
    }
    folders = {
        path.relative_to(VENDOR).parts[0]
        for path in files()
        if path.is_relative_to(VENDOR) and path.parent != VENDOR
    }
    assert folders == set(told)
    for name, licence in told.items():
        assert licence_of(VENDOR / name / "LICENSE") == licence


def test_no_file_says_another_licence_than_the_list() -> None:
    """A line of SPDX in a file counts before REUSE.toml, so it must say the same."""
    for path in files():
        if path.suffix in {
            ".py",
            ".js",
            ".mjs",
            ".java",
            ".sh",
            ".css",
        } and not path.is_relative_to(VENDOR):
            said = re.findall(
                r"^\W*SPDX-License-Identifier: (.+?)\s*$",
                (ROOT / path).read_text("utf-8"),
                re.MULTILINE,
            )
            assert set(said) <= {licence_of(path)}, path

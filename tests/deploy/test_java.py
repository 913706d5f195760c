"""Finding a Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.deploy import java, mosquitto
from edgewake.protocol.errors import LocalError


def fake_java(folder: Path, says: str) -> Path:
    """A `java` that only tells a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("nonsense", None),
    ],
)
def test_the_version_is_read(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    assert java.find({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}) == home


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    new = fake_java(tmp_path / "new", 'openjdk version "17.0.2"')
    assert java.find({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}) == new


def test_a_java_that_is_too_new_is_passed_over(tmp_path: Path) -> None:
    """Spark would start with it and end at its first call of what is no longer there."""
    fake_java(tmp_path / "new", f'openjdk version "{java.VERSION_MAX + 1}"')
    newest = fake_java(tmp_path / "newest", f'openjdk version "{java.VERSION_MAX}.0.1"')
    assert java.find({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(newest.parent)}) == newest
    assert java.find({"JAVA_HOME": str(tmp_path / "new")}) is None


def test_without_java_and_without_root_one_line_says_how_to_get_it() -> None:
    with pytest.raises(LocalError, match=r"^Java 17 to 25 is missing; install it, .* with: sudo apt-get install openjdk-17-jre-headless$"):
        java.ensure({}, may_install=False)


def test_without_mosquitto_and_without_root_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosquitto, "_SBIN", "/nowhere")
    with pytest.raises(LocalError, match=r"^Mosquitto 2 or newer is missing; install it, .* with: sudo apt-get install mosquitto$"):
        mosquitto.ensure({}, may_install=False)


def test_this_machine_has_what_the_tests_need() -> None:
    assert java.VERSION_MIN <= (java.version(java.ensure()) or 0) <= java.VERSION_MAX
    assert (mosquitto.version(mosquitto.ensure()) or (0,)) >= (2,)

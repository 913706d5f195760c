"""Finding a Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.deploy.programs import apt, java, mosquitto, program_version
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


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            "echo 'Unrecognized option: -Xnone' >&2; exit 1",
            "names no version, expected Java 17 to 25; it says: Unrecognized option: -Xnone$",
        ),
        ("exec sleep 600", "-version gave no answer within 0.2 s; is the machine that busy\\?$"),
    ],
    ids=["bad options", "no answer"],
)
def test_a_java_that_tells_no_version_is_said_and_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    """To install one upgraded the machine's own, under every Kafka and Spark that ran on it."""
    program = fake_java(tmp_path / "broken", "")
    program.write_text(f"#!/bin/sh\n{script}\n")
    monkeypatch.setattr(program_version, "ANSWER_S", 0.2 if "sleep" in script else 60)
    monkeypatch.setattr(apt, "install", lambda *_args, **_more: pytest.fail("would install"))
    with pytest.raises(LocalError, match=f"^{program} .*{problem}"):
        java.ensure({"PATH": f"{program.parent}:/usr/bin:/bin"}, may_install=True)


def test_a_java_that_tells_no_version_is_passed_over_where_another_fits(tmp_path: Path) -> None:
    fake_java(tmp_path / "broken", "nonsense")
    fits = fake_java(tmp_path / "fits", 'openjdk version "17.0.2"')
    assert java.find({"JAVA_HOME": str(tmp_path / "broken"), "PATH": str(fits.parent)}) == fits


def test_without_java_and_without_root_one_line_says_how_to_get_it() -> None:
    with pytest.raises(
        LocalError,
        match=r"^Java 17 to 25 is missing; install it, .* with: sudo apt-get install "
        r"openjdk-17-jre-headless$",
    ):
        java.ensure({}, may_install=False)


def test_this_machine_has_what_the_tests_need() -> None:
    assert java.VERSION_MIN <= java.version(java.ensure()) <= java.VERSION_MAX
    assert mosquitto.version(mosquitto.ensure()) >= (2,)

"""Our Java classes: compiled once, kept, and compiled again where something changed."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from edgewake.cloud.analysis.spark import java_classes
from edgewake.cloud.analysis.spark.class_archive import java_of
from edgewake.protocol.errors import ConfigError, LocalError


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that a test may change."""
    folder = tmp_path / "edgewake"
    shutil.copytree(java_classes.SOURCES, folder)
    monkeypatch.setattr(java_classes, "SOURCES", folder)
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that writes a line for each of its runs into this file."""
    java = java_of()
    assert java is not None
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    told = tmp_path / "runs"
    told.touch()
    counting = home / "bin" / "java"
    counting.write_text(f'#!/bin/sh\necho run >> "{told}"\nexec "{java.resolve()}" "$@"\n')
    counting.chmod(counting.stat().st_mode | stat.S_IXUSR)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return told


def count(runs: Path) -> int:
    return len(runs.read_text().splitlines())


def test_all_sources_are_compiled_by_the_first_start_and_nothing_by_the_second(
    tmp_path: Path, spark_jars: Path, runs: Path
) -> None:
    kept = tmp_path / "kept"
    jar = java_classes.jar_of(kept, spark_jars)
    assert count(runs) == 1
    expected = {f"edgewake/{path.stem}.class" for path in java_classes.SOURCES.glob("*.java")}
    with zipfile.ZipFile(jar) as archive:
        assert expected <= set(archive.namelist())
    assert java_classes.jar_of(kept, spark_jars) == jar
    assert count(runs) == 1
    assert list(kept.iterdir()) == [jar], "nothing else is left"


@pytest.mark.long
def test_other_sources_or_another_java_make_another_jar_and_the_old_one_goes(
    tmp_path: Path, spark_jars: Path, runs: Path, sources: Path
) -> None:
    kept = tmp_path / "kept"
    jars = [java_classes.jar_of(kept, spark_jars)]
    (sources / "Defaults.java").write_text((sources / "Defaults.java").read_text() + "// changed\n")
    jars.append(java_classes.jar_of(kept, spark_jars))
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.2"\n')
    jars.append(java_classes.jar_of(kept, spark_jars))
    assert len(set(jars)) == 3
    assert count(runs) == 3
    assert list(kept.iterdir()) == jars[-1:]


@pytest.mark.long
def test_a_jar_of_which_a_part_is_missing_is_made_again(
    tmp_path: Path, spark_jars: Path, runs: Path
) -> None:
    jar = java_classes.jar_of(tmp_path / "kept", spark_jars)
    whole = jar.read_bytes()
    for rest in (b"", whole[: len(whole) // 2]):
        jar.write_bytes(rest)
        assert java_classes.jar_of(tmp_path / "kept", spark_jars) == jar
        with zipfile.ZipFile(jar) as archive:
            assert archive.testzip() is None
    assert count(runs) == 3


@pytest.mark.long
def test_sources_that_do_not_compile_are_named_and_leave_nothing(
    tmp_path: Path, spark_jars: Path, sources: Path
) -> None:
    kept = tmp_path / "kept"
    (sources / "Defaults.java").write_text("package edgewake; final class Defaults { int x = ; }")
    with pytest.raises(
        LocalError, match=r"our Java classes do not compile with .*ecj.*Defaults\.java"
    ):
        java_classes.jar_of(kept, spark_jars)
    assert list(kept.iterdir()) == []


def test_a_compiler_that_hangs_is_ended(
    tmp_path: Path, spark_jars: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_classes, "COMPILE_S_MAX", 0.05)
    (tmp_path / "java" / "bin" / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(LocalError, match="were not compiled within 0 s"):
        java_classes.jar_of(tmp_path / "kept", spark_jars)


def test_jars_without_the_compiler_are_refused_with_what_to_do(
    tmp_path: Path, spark_jars: Path
) -> None:
    for path in spark_jars.glob("*.jar"):
        if not path.match(java_classes.COMPILER):
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(
        ConfigError,
        match=r"jars_dir = .*: no ecj-\*\.jar in it; `edgewake jars fetch spark` fetches",
    ):
        java_classes.jar_of(tmp_path / "kept", tmp_path)


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, spark_jars: Path) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(LocalError, match=r"kept: our Java classes cannot be written"):
        java_classes.jar_of(tmp_path / "kept", spark_jars)


def test_what_is_compiled_needs_no_newer_java_than_spark(tmp_path: Path, spark_jars: Path) -> None:
    """The class file's version is 61, which is Java 17, whatever Java compiled it."""
    jar = java_classes.jar_of(tmp_path / "kept", spark_jars)
    with zipfile.ZipFile(jar) as archive:
        versions = {int.from_bytes(archive.read(name)[6:8], "big") for name in archive.namelist()}
    assert versions == {61}

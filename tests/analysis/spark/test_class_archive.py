"""The file of Spark's classes: made by one JVM, taken by the next with the same jars, and by no
other.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from edgewake.cloud.analysis.spark import class_archive
from edgewake.cloud.analysis.spark.class_archive import (
    ClassArchive,
    command_line,
    dump_command,
    key_of,
)
from edgewake.deploy.programs import java
from tests.services import PATIENCE_S, wait_until

JVM = ["/usr/bin/java", "-cp", "/spark/conf/:/spark/jars/a.jar", "-Xmx1g",
    "-XX:+IgnoreUnrecognizedVMOptions",
       "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dx=1",
       "org.apache.spark.deploy.SparkSubmit",
       "--conf", "spark.a=b", "pyspark-shell"]  # fmt: skip


def starts(java_options: list[str], jar: Path) -> bool:
    """Does a JVM start that may use nothing but the file?"""
    command = [str(java.ensure()), "-Xshare:on", *java_options, "-cp", str(jar), "-version"]
    return (
        subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode
        == 0
    )


@pytest.mark.services
def test_a_jvm_uses_the_file_that_was_made_of_its_jars_and_no_other_does(
    spark_jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    monkeypatch.delenv(class_archive.OPTIONS, raising=False)
    (jar,), (other,) = (
        list(spark_jars.glob(name)) for name in ("kafka-clients-*.jar", "commons-pool2-*.jar")
    )
    archive = ClassArchive(tmp_path / "classes", "k")
    (first,) = archive.options()
    recorder = [str(java.ensure()), first.strip('"'), "-cp", str(jar), "-version"]
    subprocess.run(recorder, capture_output=True, timeout=PATIENCE_S, check=True)
    with (tmp_path / "classes" / "spark-k.list").open("ab") as names:
        # The JVM goes on: its last line is not whole yet.
        names.write(b"org/apache/kafka/common/Uuid\njava/lang/Obj")

    archive.make(recorder)

    assert archive.is_made
    (*_, use) = archive.options()
    assert starts([use.strip('"')], jar)
    assert not starts([use.strip('"')], other)
    assert sorted(path.name for path in (tmp_path / "classes").iterdir()) == [
        "spark-k.jsa",
        "spark-k.list",
    ]


def test_files_of_other_jars_are_removed_when_a_new_one_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(class_archive.OPTIONS, raising=False)
    (tmp_path / "spark-old.jsa").write_bytes(b"old")
    assert ClassArchive(tmp_path, "new").options() == [
        f'"-XX:DumpLoadedClassList={tmp_path}/spark-new.list"'
    ]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "spark-new.jsa").write_bytes(b"new")
    assert (
        ClassArchive(tmp_path, "new").options()[-1]
        == f'"-XX:SharedArchiveFile={tmp_path}/spark-new.jsa"'
    )


def test_whoever_gives_the_jvm_a_file_of_his_own_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.OPTIONS, "-Xlog:disable -XX:SharedArchiveFile=/own.jsa")
    assert ClassArchive(tmp_path / "classes", "k").options() == []
    assert not (tmp_path / "classes").exists()


def test_only_what_a_jvm_writes_down_is_made_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a list the making failed a minute later, and a warning said so."""
    monkeypatch.delenv(class_archive.OPTIONS, raising=False)
    monkeypatch.setattr(class_archive, "AFTER_S", 0.0)
    made: list[str] = []
    monkeypatch.setattr(ClassArchive, "make", lambda self, jvm: made.extend(jvm))
    archive = ClassArchive(tmp_path, "k")
    archive.begin(JVM)
    archive.close()
    assert made == []
    jvm = [*JVM, *(option.strip('"') for option in archive.options())]
    other = ClassArchive(tmp_path, "k")
    other.begin(jvm)
    wait_until(lambda: made == jvm, "the file is made")
    other.close()


def test_a_folder_that_cannot_be_made_costs_the_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(class_archive.OPTIONS, raising=False)
    (tmp_path / "classes").write_bytes(b"a file")
    assert ClassArchive(tmp_path / "classes", "k").options() == []


def test_the_key_is_another_one_for_other_jars_and_another_java(tmp_path: Path) -> None:
    one, two = tmp_path / "a.jar", tmp_path / "b.jar"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    found = key_of(Path("/usr/bin/true"), [two, one])
    assert found == key_of(Path("/usr/bin/true"), [one, two])
    assert found not in (
        key_of(Path("/usr/bin/true"), [one]),
        key_of(Path("/usr/bin/false"), [one, two]),
    )
    one.write_bytes(b"11")
    assert found != key_of(Path("/usr/bin/true"), [one, two])


def test_the_jvm_that_makes_the_file_has_the_class_path_and_modules_of_the_one_that_uses_it(
    tmp_path: Path,
) -> None:
    command = dump_command(JVM, tmp_path / "names", tmp_path / "file")
    assert command[:4] == [JVM[0], *JVM[4:7]]
    assert command[-2:] == JVM[1:3]
    assert "-Xshare:dump" in command
    with pytest.raises(ValueError, match="-cp"):
        dump_command(["java", "-version"], tmp_path, tmp_path)


def test_a_process_tells_its_command_line() -> None:
    assert Path(command_line(os.getpid())[0]).name.startswith("python")

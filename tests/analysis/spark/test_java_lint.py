"""What `make lint` finds in Java sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.protocol.errors import LocalError
from tests import java_lint

SOUND = """package edgewake;

import java.util.ArrayList;
import java.util.List;

final class Sound {
  List<String> names() {
    return new ArrayList<>();
  }
}
"""


def faults_of(folder: Path, text: str) -> str:
    source = folder / "Sound.java"
    source.write_text(text)
    return java_lint.faults(java_lint.ensured(), [source])


@pytest.mark.long
def test_a_raw_type_is_a_fault(tmp_path: Path) -> None:
    """Control: the same with its type is none."""
    assert faults_of(tmp_path, SOUND) == ""
    found = faults_of(tmp_path, SOUND.replace("<String>", "").replace("<>", ""))
    assert "[rawtypes] found raw type: List" in found


def test_what_does_not_compile_is_a_fault(tmp_path: Path) -> None:
    assert "incompatible types" in faults_of(tmp_path, SOUND.replace("new ArrayList<>()", "1"))


def test_a_line_has_a_hundred_characters_at_most(tmp_path: Path) -> None:
    source = tmp_path / "Long.java"
    source.write_text("/" * 100 + "\n" + "/" * 101 + "\n")
    assert java_lint.long_lines([source]) == [f"{source}:2: 101 characters, expected at most 100"]


def test_without_a_jdk_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(
        LocalError, match=r"javac of a JDK 17 or newer is missing; .* openjdk-17-jdk-headless"
    ):
        java_lint.ensured({"PATH": str(tmp_path)}, may_install=False)

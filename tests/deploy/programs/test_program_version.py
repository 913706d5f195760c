"""A program on this machine is asked for its version."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.deploy.programs import program_version
from edgewake.deploy.programs.program_version import answer, unclear
from edgewake.protocol.errors import LocalError


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_all_that_it_prints_is_its_answer_whatever_its_exit_code(tmp_path: Path) -> None:
    asked = program(tmp_path / "p", r'echo "version of $1"; printf "\377" >&2; exit 3')
    assert answer(asked, "-h") == "\ufffdversion of -h\n"


def test_a_program_that_does_not_run_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("no program")
    with pytest.raises(LocalError, match="is there but does not run"):
        answer(path, "-v")


def test_a_program_that_gives_no_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_version, "ANSWER_S", 0.2)
    with pytest.raises(LocalError, match=r"gave no answer within 0\.2 s"):
        answer(program(tmp_path / "p", "exec sleep 60"), "-v")


@pytest.mark.parametrize(
    ("said", "shown"), [("", "nothing"), ("  some\n words ", "some words"), ("x" * 400, "x" * 300)]
)
def test_an_answer_without_a_version_is_shown_with_what_was_expected(said: str, shown: str) -> None:
    error = unclear(Path("/usr/bin/p"), "-v", said, "such as 2.0")
    assert str(error) == f"/usr/bin/p -v names no version, expected such as 2.0; it says: {shown}"

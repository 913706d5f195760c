"""The login of people in configuration files, tried by the program of the parts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgewake.deploy.doctor import logins
from edgewake.deploy.doctor.doctor import Finding, Verdict


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the one that asks a provider."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ops.toml"
    path.write_text("[login]\nissuer = 'https://login.example'\n")
    return path


def test_files_without_a_login_and_files_that_are_gone_ask_nobody(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[http]\n")
    assert logins.examine([tmp_path / "a.toml", tmp_path / "gone.toml"]) == []


def test_what_the_program_finds_is_what_is_found(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = '[{"check":"login","verdict":"ok","detail":"fine"}]'.replace("ok", Verdict.GOOD.value)
    program(tmp_path, f"echo '{found}'", monkeypatch)
    assert logins.examine([config]) == [Finding("login", Verdict.GOOD, "fine")]


@pytest.mark.parametrize(
    ("text", "why"),
    [("echo no module >&2; exit 1", "not examined: no module"),
     ("echo nonsense", "not examined: Expecting value")],
)  # fmt: skip
def test_a_program_that_fails_or_says_nonsense_is_a_finding(
    text: str, why: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text, monkeypatch)
    (finding,) = logins.examine([config])
    assert (finding.verdict, finding.detail[: len(why)]) == (Verdict.BAD, why)


def test_a_program_that_hangs_is_given_up(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "PROVIDER_S", 0.2)
    program(tmp_path, "exec sleep 60", monkeypatch)
    (finding,) = logins.examine([config])
    assert (finding.verdict, finding.detail) == (Verdict.BAD, "not examined within 0 s")

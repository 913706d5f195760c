"""`edgewake open`: a link for this machine's browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.ops.service import running
from tests.services import Kafka, wait_until

pytestmark = pytest.mark.services


def test_open_hands_a_link_to_the_machines_browser_or_prints_it(
    kafka: Kafka, tmp_path: Path
) -> None:
    programs, seen = tmp_path / "bin", tmp_path / "seen"
    programs.mkdir()
    with running(kafka.bootstrap, tmp_path) as ops:
        command = [sys.executable, "-m", "edgewake.deploy.cli", "open", "--ops", ops.url]
        command += ["--key-file", str(tmp_path / "ops.key")]

        def opened(browser: Path | None) -> str:
            env = {"PATH": str(programs)} | ({"BROWSER": f"{browser} %s"} if browser else {})
            done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert f"within ten minutes, once: {ops.url}/in?ticket=" in opened(None)
        (programs / "look").write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
        (programs / "look").chmod(0o755)
        assert opened(programs / "look") == ""
        wait_until(seen.exists, "the browser is asked")
        assert httpx.get(seen.read_text().strip()).status_code == 200

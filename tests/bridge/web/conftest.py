"""A device with a password, as the broker's file has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PASSWORD = "vtbjnz3rahbejmxragraj2hdwdz5vjkh"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    command = ["mosquitto_passwd", "-b", "-c", str(path), "boiler", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    return path

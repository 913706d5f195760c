"""Finding a Mosquitto that fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.deploy.programs import apt, mosquitto
from edgewake.protocol.errors import LocalError


def test_a_mosquitto_that_tells_no_version_is_said_and_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\necho 'cannot open shared object file' >&2; exit 127\n")
    program.chmod(0o755)
    monkeypatch.setattr(apt, "install", lambda *_args, **_more: pytest.fail("would install"))
    with pytest.raises(
        LocalError,
        match=r"names no version, expected Mosquitto 2 or newer; it says: cannot open shared "
        r"object "
        r"file$",
    ):
        mosquitto.ensure({"PATH": str(tmp_path)}, may_install=True)


def test_without_mosquitto_and_without_root_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mosquitto, "_SBIN", "/nowhere")
    with pytest.raises(
        LocalError,
        match=r"^Mosquitto 2 or newer is missing; install it, .* with: sudo apt-get install "
        r"mosquitto$",
    ):
        mosquitto.ensure({}, may_install=False)

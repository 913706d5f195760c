"""A server against its own OpenAPI document, by schemathesis: no answer that the document does not
foresee, whatever is asked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.services import PATIENCE_S

WHOLE = pytest.mark.parametrize(
    "whole",
    [pytest.param(False, id="short"), pytest.param(True, id="whole", marks=pytest.mark.long)],
)
"""In whole, the coverage phase adds every boundary of the document."""
EXAMPLES, FEW = 8, 1
"""Requests of each kind and operation, in whole and in short."""

ANSWER_S = 90
"""Until an answer counts as missing: a preview waits a minute for an analysis, and here none
runs."""


def check(
    url: str, directory: Path, *options: str, whole: bool, disabled: Sequence[str] = ()
) -> None:
    """AssertionError with what schemathesis found.

    `disabled`: checks that the server cannot pass, for a reason the caller gives.

    503 is no fault: it is what a server answers where somebody else is away, e.g. the name server
    that knows an endpoint. Every 4xx refuses what the document forbids, 413 too: a body that is too
    long is not read, whatever else is wrong with it.
    """
    config = directory / "schemathesis.toml"
    fault = '[checks.not_a_server_error]\nexpected-statuses = ["1xx", "2xx", "3xx", "4xx", 503]\n'
    fault += '[checks.negative_data_rejection]\nexpected-statuses = ["4xx", 503]\n'
    config.write_text(fault + "".join(f"[checks.{name}]\nenabled = false\n" for name in disabled))
    program = Path(sys.executable).with_name("schemathesis")
    command = [
        str(program),
        "--config-file",
        str(config),
        "run",
        f"{url}/openapi.json",
        "--max-examples",
        str(EXAMPLES if whole else FEW),
    ]
    phases = "coverage,fuzzing" if whole else "fuzzing"
    command += ["--phases", phases, "--mode", "all", "--seed", "1", "--workers", "1"]
    command += ["--request-timeout", str(ANSWER_S), *options]
    # It is made at the first request, which may take longer than schemathesis waits for it.
    httpx.get(f"{url}/openapi.json", timeout=PATIENCE_S).raise_for_status()
    done = subprocess.run(command, capture_output=True, text=True, timeout=440, cwd=directory)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

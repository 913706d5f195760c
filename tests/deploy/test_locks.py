"""What is installed is what the locks name, without asking further: so each lock names all that is
needed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_nothing_that_was_installed_from_the_locks_misses_what_it_needs():
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [uv, "pip", "check", "--python", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Checked" in done.stderr

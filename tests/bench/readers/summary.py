"""What the benchmarks of readers found, in one table and in one page.

`python -m tests.bench.readers.summary FOLDER NAME…` reads `FOLDER/NAME.json` as each benchmark
wrote it, prints the figures that have a goal, and writes FOLDER/readers.md: how each measures, all
of its figures, those of rivals beside them, and what bounds those that fall short.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.report import figure, machine, section, table


def main(folder: Path, names: list[str]) -> None:
    """Print, and write."""
    lines = ["# What readers cost", "", *(f"* {key}: {told}" for key, told in machine().items())]
    all_of_them = []
    for name in names:
        file = folder / f"{name}.json"
        if not file.exists():
            lines += ["", f"`{name}` has no figures: it failed."]
            continue
        figures = [figure(name, row) for row in json.loads(file.read_text("utf-8"))]
        when = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        lines += section(name, figures, f"{when:%Y-%m-%d %H:%M} UTC")
        all_of_them += figures
    page = folder / "readers.md"
    page.write_text("\n".join(lines) + "\n", "utf-8")
    print(table([one for one in all_of_them if one.floor is not None]))
    print(f"\nall figures, how they were measured and what bounds them: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

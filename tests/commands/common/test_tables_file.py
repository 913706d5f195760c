"""Files of `apply` that are refused before anything of them is applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgewake.cloud.commands.common.api_client import OpsApi
from edgewake.deploy.cli import edgewake

Apply = Callable[[str, str, str], tuple[Result, list[str]]]
GOOD = '[hall]\nstream = "s"\nwhen = "v > 1"\n'


@pytest.fixture
def apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Apply:
    """Applies a file of a thing: what is said, and the addresses that were put."""
    asked: list[str] = []

    class Answer:
        def json(self) -> dict[str, Any]:
            return {"version": 1, "looks_at": "", "members": 0, "cards": []}

    def ask(_api: OpsApi, _method: str, path: str, **_more: Any) -> Answer:
        asked.append(path)
        return Answer()

    monkeypatch.setattr(OpsApi, "ask", ask)

    def run(thing: str, name: str, text: str) -> tuple[Result, list[str]]:
        file = tmp_path / name
        file.write_text(text)
        env = {"EDGEWAKE_OPS_URL": "http://127.0.0.1:9", "EDGEWAKE_OPS_KEY": "k"}
        return CliRunner().invoke(edgewake, [thing, "apply", str(file)], env=env), asked

    return run


@pytest.mark.parametrize("thing", ["alert", "set", "publication"])
@pytest.mark.parametrize("name", ["hall#2", "hall?version=9", "../sets/hall", "Hall", "hall\\n"])
def test_a_name_that_would_be_another_s_address_changes_nothing(
    apply: Apply, thing: str, name: str
) -> None:
    """The good one stands first, and is not applied either."""
    said, asked = apply(thing, "f.toml", f'{GOOD}["{name}"]\nstream = "s"\n')
    assert (said.exit_code, asked) == (1, [])
    assert f"is not the name of a {'rule' if thing == 'alert' else thing}: expected 1-64" in (
        said.stderr
    )


def test_a_board_needs_such_a_name_too(apply: Apply) -> None:
    said, asked = apply("board", "b.json", '{"name": "hall#2", "cards": []}')
    assert (said.exit_code, asked) == (1, [])
    assert "'hall#2' is not the name of a board" in said.stderr


@pytest.mark.parametrize(
    ("thing", "file", "text"),
    [
        ("board", "b.json", '{"name": "b", "cards": [{"low": NaN}]}'),
        ("board", "b.json", '{"name": "b", "title": "\\ud800"}'),
        ("board", "b.json", "[" * 100_000),
        ("alert", "r.toml", GOOD + "for_s = 2026-01-01\n"),
        ("alert", "r.toml", GOOD + "for_s = inf\n"),
        ("set", "s.json", '{"s": {"members": ["\\ud800"]}}'),
        ("set", "s.json", '{"s":' * 100_000),
    ],
)
def test_what_json_cannot_say_is_the_file_s_fault(
    apply: Apply, thing: str, file: str, text: str
) -> None:
    """It is no fault of the address, which is what was said."""
    said, asked = apply(thing, file, text)
    assert (said.exit_code, asked) == (1, [])
    assert file in said.stderr
    assert "answers otherwise" not in said.stderr


def test_a_good_file_is_applied_in_its_order(apply: Apply) -> None:
    said, asked = apply("alert", "r.toml", GOOD + GOOD.replace("hall", "attic"))
    assert (said.exit_code, asked) == (0, ["/v1/alerts/hall", "/v1/alerts/attic"])

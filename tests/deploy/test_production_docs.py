"""docs/production.md: what it shows works, what it names exists."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgewake.deploy import cli
from edgewake.edge.config import AgentConfig
from tests.deploy.production import certificates

DEPLOY = Path(cli.__file__).resolve().parent
TEXT = (DEPLOY.parent / "docs" / "production.md").read_text()
README = (DEPLOY.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def certificate_commands() -> list[list[str]]:
    """Arguments of each call of certificates.sh, the folder first."""
    lines = "\n".join(blocks("sh")).splitlines()
    return [shlex.split(line)[2:] for line in lines if line.startswith("sh deploy/certificates.sh")]


def test_the_commands_for_certificates_do_what_the_page_says(tmp_path: Path) -> None:
    commands = certificate_commands()
    assert len(commands) == 4
    first, new = tmp_path / "certs", tmp_path / "certs-new"
    for folder, *arguments in commands:
        done = certificates(new if folder == "certs-new" else first, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    named = set(re.findall(r"`certs/(\w+)/`", TEXT)) | set(
        re.findall(r"`certs/(\w+)/[\w.-]+`", TEXT)
    )
    assert named == {path.name for path in first.iterdir()}
    assert (first / "broker" / "devices-ca.crt").exists()
    assert not (first / "devices" / "car-07.crt").exists(), "it was revoked"
    assert (new / "devices" / "car-07.crt").exists(), "of the other authority"


def test_every_variable_it_names_is_read_by_something(tmp_path: Path) -> None:
    sources = "\n".join(
        path.read_text("utf-8", "replace")
        for path in DEPLOY.rglob("*")
        if path.is_file() and path.suffix not in {".pyc"}
    )
    variables = set(re.findall(r"\b(EDGEWAKE_[A-Z]+(?:_[A-Z]+)*|SERVER_NAMES)\b", TEXT))
    assert variables
    assert [name for name in variables if name not in sources] == []


def test_the_extras_it_installs_exist() -> None:
    declared = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(re.findall(r"'\.\[(\w+)\]'", TEXT + README)) <= set(declared)


def test_the_agent_s_configuration_is_one() -> None:
    (example,) = (block for block in blocks("toml") if block.startswith("device"))
    settings = AgentConfig.checked(tomllib.loads(example))
    assert settings.device == Path(str(settings.mqtt.cert_file)).stem


def test_prometheus_is_told_where_the_parts_answer() -> None:
    (example,) = blocks("yaml")
    targets = yaml.safe_load(example)["scrape_configs"][0]["static_configs"][0]["targets"]
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ports = {
        f"{name}:{one['environment']['HEALTH_PORT']}"
        for name, one in services.items()
        if one["image"].startswith("edgewake")
    }
    assert set(targets) == ports


@pytest.mark.parametrize("port", ["8883", "8884"])
def test_the_broker_listens_where_it_says(port: str) -> None:
    assert f"port {port}" in TEXT
    assert f"\nlistener {port}\n" in (DEPLOY / "mosquitto" / "production.conf").read_text()


def test_the_readme_s_figures_are_the_code_s() -> None:
    from edgewake.cloud.analysis.config import AnalysisConfig
    from edgewake.deploy.parts.lifecycle import QUICK_MAX, SLOW_S
    from edgewake.deploy.programs import java

    assert (
        f"every {AnalysisConfig.model_fields['trigger_ms'].default} ms by default (`trigger_ms`)"
        in README
    )
    assert (
        f"every {AnalysisConfig.model_fields['calm_trigger_ms'].default} ms (`calm_trigger_ms`)"
        in README
    )
    assert f"Java {java.VERSION_MIN} to {java.VERSION_MAX}" in README
    assert (QUICK_MAX, SLOW_S) == (5, 30)
    assert "Five quick starts, then one every 30 to 60 s" in README

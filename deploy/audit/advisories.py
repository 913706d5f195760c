"""Finds advisories about what is locked: pip-audit, npm audit, and OSV for the jars.

Each may be out of reach; then it is said so, component by component, because "nothing found" would
be taken for "nothing known".
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from edgewake.deploy.audit.accepted import Accepted
from edgewake.deploy.audit.locked import Component

ASK_S: Final = 300
"""Seconds for one service and all that is locked."""
OSV_S: Final = 30
OSV_QUERIES_MAX: Final = 500
"""The most queries of one request; the service takes 1000."""
WHY_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Warned:
    """An advisory about a component."""

    component: str
    version: str
    id: str
    text: str


@dataclass
class Told:
    """The answers of the advisory services."""

    warned: list[Warned] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    """Component → why nobody could be asked about it."""

    def add(self, other: Told) -> None:
        """Put the answers of another service beside these."""
        self.warned += other.warned
        self.not_asked |= other.not_asked


def ask(components: Sequence[Component], osv_url: str) -> Told:
    """Ask all services about all components."""
    told = Told()
    by = {
        name: [one for one in components if one.ecosystem == name]
        for name in ("pypi", "npm", "maven")
    }
    told.add(ask_pip_audit(by["pypi"]))
    told.add(ask_npm(by["npm"]))
    told.add(ask_osv(by["maven"], osv_url))
    return told


def judge(told: Told, accepted: Accepted, today: date) -> Iterator[str]:
    """What is wrong, a sentence each."""
    named = {(entry.id, entry.component): entry for entry in accepted.advisory}
    for warned in told.warned:
        entry = named.pop((warned.id, warned.component), None)
        if entry is None:
            yield f"{warned.component} {warned.version}: {warned.id}: {warned.text}"
        elif entry.until < today:
            yield (
                f"{warned.component} {warned.version}: {warned.id} was accepted until "
                f"{entry.until}: look at it again"
            )
    for (name, component), _ in named.items():
        if component not in told.not_asked:
            yield f"accepted.toml: {name} is not reported for {component} any more: remove it"


# --- pip-audit ------------------------------------------------------------------------------------


def ask_pip_audit(components: Sequence[Component]) -> Told:
    """About Python's packages.

    It takes each name once, and a lock may have two versions of one, for two versions of Python.
    """
    told, left = Told(), list(components)
    while left:
        some = list({one.name: one for one in left}.values())
        left = [one for one in left if one not in some]
        told.add(_ask_pip_audit_once(some))
    return told


def _ask_pip_audit_once(components: Sequence[Component]) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "locked.txt"
        asked.write_text("".join(f"{one.name}=={one.version}\n" for one in components), "utf-8")
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--requirement",
            str(asked),
            "--no-deps",
            "--disable-pip",
        ]
        answer = _run([*command, "--format", "json", "--progress-spinner", "off"])
    return read_pip_audit(answer, components)


def read_pip_audit(answer: str, components: Sequence[Component]) -> Told:
    """Read the JSON of pip-audit.

    It takes a package that its service does not answer for as one that is well; we do not.
    """
    try:
        found = {
            (one["name"].lower(), one.get("version", "")): one
            for one in json.loads(answer)["dependencies"]
        }
    except (ValueError, KeyError, TypeError):
        return _none_asked(
            components, f"pip-audit says: {answer.strip().rpartition(chr(10))[2][:WHY_CHARS_MAX]}"
        )
    told = Told()
    for component in components:
        one = found.get((component.name, component.version)) or found.get((component.name, ""))
        if one is None or "skip_reason" in one:
            told.not_asked[component.key] = (
                one["skip_reason"] if one else "pip-audit says nothing of it"
            )
            continue
        for each in one["vulns"]:
            told.warned.append(
                Warned(
                    component.key,
                    component.version,
                    each["id"],
                    _first_line(each.get("description", "")),
                )
            )
    return told


# --- npm audit ------------------------------------------------------------------------------------


def ask_npm(components: Sequence[Component]) -> Told:
    """About JavaScript's packages, those of the page among them."""
    packages: dict[str, Any] = {
        "": {"name": "locked", "dependencies": {one.name: one.version for one in components}}
    }
    packages |= {f"node_modules/{one.name}": {"version": one.version} for one in components}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "package.json").write_text(
            json.dumps(packages[""] | {"version": "0.0.0"}), "utf-8"
        )
        lock = {"name": "locked", "lockfileVersion": 3, "requires": True, "packages": packages}
        (Path(folder) / "package-lock.json").write_text(json.dumps(lock), "utf-8")
        answer = _run(["npm", "audit", "--json", "--package-lock-only"], cwd=folder)
    return read_npm(answer, components)


def read_npm(answer: str, components: Sequence[Component]) -> Told:
    """Read the JSON of npm audit."""
    try:
        body = json.loads(answer)
        found = body["vulnerabilities"]
    except (ValueError, KeyError, TypeError):
        return _none_asked(components, f"npm audit says: {_npm_error(answer)}")
    told = Told()
    for component in components:
        for each in found.get(component.name, {}).get("via", []):
            if isinstance(each, dict):
                identity = str(each.get("url", each.get("source", "unknown"))).rpartition("/")[2]
                told.warned.append(
                    Warned(
                        component.key,
                        component.version,
                        identity,
                        _first_line(each.get("title", "")),
                    )
                )
    return told


def _npm_error(answer: str) -> str:
    try:
        body = json.loads(answer)
        return _first_line(str(body.get("message") or body["error"]["summary"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _first_line(answer.strip())


# --- OSV ------------------------------------------------------------------------------------------


def ask_osv(components: Sequence[Component], url: str) -> Told:
    """About jars, in as few requests as it takes."""
    import httpx

    told = Told()
    for first in range(0, len(components), OSV_QUERIES_MAX):
        some = components[first : first + OSV_QUERIES_MAX]
        queries = [
            {
                "package": {"ecosystem": "Maven", "name": f"{one.group}:{one.name}"},
                "version": one.version,
            }
            for one in some
        ]
        try:
            response = httpx.post(f"{url}/v1/querybatch", json={"queries": queries}, timeout=OSV_S)
            response.raise_for_status()
            told.add(read_osv(response.json(), some))
        except (httpx.HTTPError, ValueError, KeyError) as error:
            told.add(
                _none_asked(some, f"{url} cannot be asked: {str(error) or type(error).__name__}")
            )
    return told


def read_osv(body: dict[str, Any], components: Sequence[Component]) -> Told:
    """The answer to a batch; raises ValueError where it has another length."""
    told = Told()
    for component, one in zip(components, body["results"], strict=True):
        for each in one.get("vulns", []):
            told.warned.append(
                Warned(component.key, component.version, each["id"], "see the database of OSV")
            )
    return told


# --- common ---------------------------------------------------------------------------------------


def _run(command: Sequence[str], cwd: str | None = None) -> str:
    """What it prints, on standard error where it prints nothing else."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_S, check=False, cwd=cwd
        )
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return f"nothing within {ASK_S} s"
    return done.stdout or done.stderr


def _none_asked(components: Sequence[Component], why: str) -> Told:
    return Told(not_asked={one.key: why for one in components})


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:WHY_CHARS_MAX]

"""Documents that cannot lie: what they name exists, what they show works."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import tomllib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import pytest

from edgewake.cloud.queries.query_file import parse
from edgewake.deploy.cli import HELP
from edgewake.edge.config import AgentConfig
from edgewake.edge.log.mode import LogMode
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import ack, compact, frame, packed, record
from edgewake.protocol.leases.lease_record import LeaseState
from edgewake.protocol.ops import device
from tests.house.source import ROOT, files

DOCUMENTS = [path for path in files() if path.suffix == ".md"]
CONFIG_PAGES = [path for path in DOCUMENTS if path.parent == Path("docs/config")]
CONFIG_LINES_MAX = 70
"""Lines of a page of keys: a screen."""


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _text(name), re.MULTILINE | re.DOTALL)


def test_every_screen_has_its_pictures_and_is_shown():
    tree = ast.parse(_text("docs/pictures.py"))
    (screens,) = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) == "SCREENS"
        and isinstance(node.value, ast.Dict)
    )
    names = [ast.literal_eval(key) for key in screens.keys if key is not None]
    looks = [f"{size}-{theme}" for size in ("desk", "phone") for theme in ("light", "dark")]
    wanted = {f"{name}-{look}.webp" for name in names for look in looks}
    assert {path.name for path in (ROOT / "docs/pictures").iterdir()} == wanted
    assert set(re.findall(r"pictures/([\w-]+\.webp)", _text("docs/screens.md"))) == wanted


@pytest.mark.parametrize(
    ("maker", "members"),
    [("reasons", RejectReason), ("later", ack.LaterReason), ("states", LeaseState)],
)
def test_a_generated_table_has_a_row_for_every_member(maker: str, members: type[StrEnum]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", getattr(_generate(), maker)(), re.MULTILINE)
    assert rows == [str(member) for member in members]


def test_a_generated_cell_holds_every_sentence_of_an_endpoint() -> None:
    table = _generate().endpoints("cloud/push/app.py")
    assert "Take a client over. When this is answered the lease is stored" in table


SYNONYMS = {
    "datapoint": "reading", "data point": "reading", "resume token": "cursor",
    "continuation token": "cursor", "offset token": "cursor",
    "DLQ": "dead letter", "dead-letter queue": "dead letter", "ack id": "ack token",
    "receipt": "ack token", "metric point": "reading",
}  # fmt: skip
"""Words that others use for what the glossary of ARCHITECTURE.md has one word for."""


def test_one_word_for_one_thing():
    wrong_words = re.compile(rf"\b({'|'.join(SYNONYMS)})s?\b")
    paths = [path for path in files() if path.suffix in {".md", ".py"} and path.parts[0] != "tests"]
    found = [
        (str(path), wrong, SYNONYMS[wrong])
        for path in paths
        for wrong in wrong_words.findall(_text(str(path)))
    ]
    assert found == [], "file, word, and the word that it should be"


def test_generated_parts_are_up_to_date():
    """`python docs/generate.py` would change nothing; so keys, topics and queries in the docs equal
    the code's.
    """
    assert _generate().stale() == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_to_files(document: Path):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", _text(str(document)))
    inside = [target for target in targets if "://" not in target]
    assert [target for target in inside if not (ROOT / document.parent / target).exists()] == []


@pytest.mark.parametrize(
    "document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/production.md"]
)
def test_paths_in_backticks_exist(document: str):
    paths = re.findall(
        r"`((?:edge|cloud|protocol|simulators|deploy|tests|docs)/[\w./*-]+)`", _text(document)
    )
    assert paths or document in ("README.md", "docs/production.md")
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []


BASES = ("", "cloud", "cloud/analysis", "cloud/queries", "cloud/push", "edge/sources")
"""Where a path of ARCHITECTURE.md may begin: it names some rooms within the one it speaks of."""


def _is_somewhere(path: str) -> bool:
    return any(list((ROOT / base).glob(path.rstrip("/"))) for base in BASES)


def test_whatever_path_the_map_names_is_there() -> None:
    """Also those that begin within a floor, and those of the drawing, which has no backticks."""
    text = _text("ARCHITECTURE.md")
    named = set(re.findall(r"`([\w.*-]+/[\w./*-]*)`", text))
    drawn = set(re.findall(r"(?<!\S)[a-z_]+/(?:\w+/|\w+\.py)?(?!\S)", _drawing(text)))
    assert len(named) > 200
    assert len(drawn) > 10
    assert [path for path in sorted(named | drawn) if not _is_somewhere(path)] == []


def test_the_drawing_has_every_room_of_the_analysis() -> None:
    drawn = set(re.findall(r"analysis/(\w+)/", _drawing(_text("ARCHITECTURE.md"))))
    rooms = {path.parent.name for path in (ROOT / "cloud/analysis").glob("*/__init__.py")}
    assert drawn == rooms


def _drawing(text: str) -> str:
    """The indented lines before the first table."""
    above = text.partition("\n## ")[0]
    return "\n".join(line for line in above.splitlines() if line.startswith("    "))


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_make_targets_in_the_docs_exist(document: Path):
    targets = set(re.findall(r"^(\w+):", _text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make (\w+)", _text(str(document)), re.MULTILINE)) <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_in_the_docs_exist(document: Path):
    commands = set(HELP)
    shown = re.findall(r"`[^`]+`|^ *\$? ?edgewake .+$", _text(str(document)), re.MULTILINE)
    named = set(re.findall(r"(?:`|^|\s)edgewake ([a-z]+(?:-[a-z]+)*)\b", "\n".join(shown)))
    assert named <= commands


@pytest.mark.parametrize(
    "example",
    [
        each
        for name in ("agent", "processing", "sources")
        for each in _blocks(f"docs/{name}.md", "toml")
    ],
)
def test_agent_examples_are_configurations(example: str):
    assert AgentConfig.checked(tomllib.loads(example)).device


@pytest.mark.parametrize("example", _blocks("docs/logging.md", "toml"))
def test_logging_examples_are_configurations(example: str):
    assert AgentConfig.checked(tomllib.loads(example)).log.mode


def test_every_logging_mode_has_its_diagram():
    parts = re.split(r"^## ", _text("docs/logging.md"), flags=re.MULTILINE)
    drawn = {
        part.split(":")[0].strip() for part in parts if "```mermaid\nsequenceDiagram\n" in part
    }
    assert {name.split("\n")[0] for name in drawn} == {mode.value for mode in LogMode}


@pytest.mark.parametrize(
    ("document", "diagram"),
    [
        (str(document), diagram)
        for document in DOCUMENTS
        for diagram in _blocks(str(document), "mermaid")
        if "sequenceDiagram" in diagram
    ],
)
def test_sequence_diagrams_name_their_participants(document: str, diagram: str):
    """And hold nothing else than these and messages between them, so that they can be drawn."""
    kind, *lines = diagram.strip().splitlines()
    participants = {line.split()[1] for line in lines if line.startswith("    participant ")}
    messages = [
        re.fullmatch(r"    (\w+)-{1,2}>>(\w+): [^;#]+", line)
        for line in lines
        if not line.startswith("    participant ")
    ]
    assert (kind, all(messages)) == ("sequenceDiagram", True)
    assert {name for message in messages if message for name in message.groups()} == participants


@pytest.mark.parametrize("example", _blocks("docs/queries.md", "sql") + _blocks("README.md", "sql"))
def test_query_examples_are_queries(example: str):
    assert parse(example).outputs


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("host_10s", {"device", "metric", "mean", "min", "max"}),
        ("speed_quantiles", {"p50", "p90", "p99"}),
        ("vehicles_distinct", {"vehicles"}),
        ("top_streets", set()),
    ],
)
def test_the_page_finds_the_columns_it_draws(query: str, columns: set[str]):
    built_in = parse(_text(f"cloud/queries/built_in/{query}.sql"))
    assert columns <= set(built_in.columns)


def test_every_key_of_every_part_is_explained():
    """No row of a table of keys has an empty meaning."""
    pages = [*CONFIG_PAGES, Path("docs/agent.md")]
    rows = re.findall(
        r"^\| `(\w+)` \| .* \|  \|$", "\n".join(_text(str(page)) for page in pages), re.MULTILINE
    )
    assert set(rows) <= {"type"}


def test_each_page_of_keys_fits_a_screen_and_is_in_the_list_of_them() -> None:
    lengths = {page.name: len(_text(str(page)).splitlines()) for page in CONFIG_PAGES}
    assert {page: lines for page, lines in lengths.items() if lines > CONFIG_LINES_MAX} == {}
    listed = re.findall(r"\]\(config/(\w+\.md)\)", _text("docs/config.md"))
    assert sorted(listed) == sorted(lengths)


def test_topics_in_the_docs_are_those_of_the_code():
    named = set(
        re.findall(r"\bew\.[a-z]+(?:\.<?\w+>?)?", "\n".join(_text(str(d)) for d in DOCUMENTS))
    )
    constants = {
        value
        for name, value in vars(topics).items()
        if name.isupper() and isinstance(value, str) and value.startswith("ew.")
    }
    assert {
        n
        for n in named
        if n not in constants
        and not n.startswith(
            (topics.STREAM_PREFIX, topics.QUERY_PREFIX, topics.INSTALLATION_PREFIX)
        )
    } <= {"ew.s", "ew.q", "ew.summaries"}


def _example(name: str) -> bytes:
    """The JSON block of docs/protocol.md that follows the comment `<!-- example: NAME -->`."""
    found = re.search(
        rf"<!-- example: {name} -->\n```json\n(.*?)```", _text("docs/protocol.md"), re.DOTALL
    )
    assert found, name
    json.loads(found[1])
    return found[1].encode()


def test_the_frame_example_decodes():
    decoded = frame.decode(_example("frame"))
    assert len(decoded.t) == len(decoded.fields["speed_kmh"]) == 3


def test_the_compact_message_example_is_the_packed_frame_example():
    found = re.search(
        r"<!-- example: compact message -->\n```text\n(.*?)```",
        _text("docs/protocol.md"),
        re.DOTALL,
    )
    assert found
    message = compact.decode(bytes.fromhex(found[1]))
    assert (message.sent_at, frame.encode(packed.unpack(message.body)[0])) == (
        1_790_000_000_100,
        frame.encode(frame.decode(_example("packed frame"))),
    )


def test_the_gap_frame_example_decodes():
    assert frame.decode(_example("gap frame")).gap == frame.Gap("quota", 200)


def test_the_plain_reading_example_decodes():
    assert frame.from_plain(_example("plain reading"), received_at=1).fields["position_lat"] == [
        53.2
    ]


def test_the_acknowledgement_examples_decode():
    assert ack.Ack.decode(_example("ack")).rejected is None
    assert ack.Ack.decode(_example("refusal")).rejected is RejectReason.FIELD_TYPE


def test_the_joined_answers_example_decodes():
    kept, refused = ack.decode_joined(_example("joined answers"))
    assert kept == (b"speed|7|12", ack.Ack(ack.AckToken(2, 88_123)))
    assert refused[1].rejected is RejectReason.FIELD_TYPE


def test_the_later_example_decodes():
    assert ack.decode_answer(_example("later")) == ack.Later(
        ack.LaterReason.FIELD_TYPE,
        30_000,
        "field 'temperature' of stream 'weather': expected a number, found a string",
    )


def test_the_status_example_decodes():
    assert device.DeviceStatus.from_json(_example("status")).state is device.DeviceState.ONLINE


def test_the_record_example_decodes_to_the_reading_example():
    shown = list(record.readings(record.decode(_example("record"))))
    assert shown == [json.loads(_example("reading"))]


def test_the_benchmarks_say_where_and_when():
    """Figures without a machine, versions and a date are rumours."""
    text = _text("docs/benchmarks.md")
    assert re.search(r"20\d\d-\d\d-\d\d", text)
    assert all(word in text.lower() for word in ("cpu", "python", "kafka", "spark", "median"))


DECISION_WORDS_MAX = 200
"""Words of a decision: a screen. A diary of measurements belongs into docs/benchmarks.md."""


def test_each_decision_has_a_date_and_fits_a_screen() -> None:
    paragraphs = _text("docs/decisions.md").split("\n\n")
    decisions = [one for one in paragraphs if one.startswith("**")]
    assert len(decisions) > 80
    titles = [one.splitlines()[0] for one in decisions]
    dated = re.compile(r"\(20\d\d-\d\d-\d\d\)")
    assert [
        title for title, one in zip(titles, decisions, strict=True) if not dated.search(one)
    ] == []
    assert [one[:80] for one in decisions if len(one.split()) > DECISION_WORDS_MAX] == []


def test_the_path_of_a_reading_names_what_there_is() -> None:
    """`file:Class.method` of docs/path-of-a-reading.md."""
    named = re.findall(r"`([a-z_/]+\.py):([A-Za-z_.]+)`", _text("docs/path-of-a-reading.md"))
    assert len(named) > 20
    assert [f"{file}:{name}" for file, name in named if not _defines(ROOT / file, name)] == []


def test_each_fault_and_threat_names_tests_that_there_are() -> None:
    text = _text("docs/faults.md")
    named = set(re.findall(r"`(tests/[\w./-]+)`", text))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    rows = [line for line in text.splitlines() if line.startswith("| ") and "tried in" not in line]
    assert [row for row in rows if "tests/" not in row and "not built" not in row] == []


def _defines(file: Path, name: str) -> bool:
    body: Sequence[ast.stmt] = ast.parse(file.read_text("utf-8")).body
    for part in name.split("."):
        found = [one for one in body if part in _names_of(one)]
        if not found:
            return False
        body = getattr(found[0], "body", ())
    return True


def _names_of(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [getattr(statement, "target", None)]
    )
    return {target.id for target in targets if isinstance(target, ast.Name)}

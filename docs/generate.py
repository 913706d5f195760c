"""Write the generated parts of the documents, so that what the code says is written once.

    python docs/generate.py            rewrite what changed
    python docs/generate.py --check    exit 1 and name the files that would change (a test does
    this)

A generated part stands between two comments in a Markdown file; the first one says what to put
there:

    <!-- generated: config edge.config:AgentConfig -->
    <!-- end generated -->

Kinds: `config MODULE:MODEL` (tables of keys), `sources` (keys of every built-in kind of source),
`doc MODULE` (its docstring), `queries` (the built-in ones), `commands` (of `edgewake`), `reasons`
(of dead letters), `remarks` (of processors), `later` (of the answer), `states` (of a lease),
`functions` (of queries), `rooms FLOOR…` (folders), `names` (dictionary of packed frames), `presets`
(maps that come with Edgewake), `preset-example PRESET TOPIC` and `preset-fields PRESET…` (what they
make of messages of the tests), `endpoints FILE…` (routes by their decorators, so that no server has
to be built). A module is named without the leading `edgewake.`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from edgewake.protocol.plain import Plain

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(<!-- generated: (?P<order>[^>]+?) -->\n)(?P<body>.*?)(<!-- end generated -->)", re.DOTALL
)
FILES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")])


def render(text: str) -> str:
    """A document with its generated parts written anew."""
    return BLOCK.sub(lambda block: block[1] + _fill(block["order"]) + block[4], text)


def _fill(order: str) -> str:
    kind, *arguments = order.split()
    return MAKERS[kind](*arguments).strip() + "\n"


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"edgewake.{module}"), name)


# Configuration
# --------------------------------------------------------------------------------------------------


SHARED = {
    "KafkaConfig": "kafka",
    "RightsConfig": "rights",
    "LoginConfig": "login",
    "TracesConfig": "traces",
    "SampledConfig": "traces",
    "MapsConfig": "maps",
    "HttpConfig": "http",
    "SparkplugConfig": "sparkplug",
    "ThingsBoardConfig": "thingsboard",
}
"""Tables with a page of their own in docs/config, since parts have them in common or few need them
→ it."""


def config(path: str) -> str:
    """Tables of a model's keys: one for its own, one for each table inside it."""
    return "\n".join(_tables(_load(path), ""))


Model: TypeAlias = type[BaseModel] | type[Plain]


def _fields(model: Model) -> Mapping[str, FieldInfo]:
    """A model's keys, as pydantic sees them."""
    if issubclass(model, BaseModel):
        return model.model_fields
    hints = get_type_hints(model, include_extras=True)
    return {
        field.name: FieldInfo.from_annotated_attribute(hints[field.name], field)
        for field in dataclasses.fields(model)
    }  # type: ignore[arg-type]


def _tables(model: Model, prefix: str) -> Iterator[str]:
    docs = attribute_docs(model)
    plain = {
        name: field for name, field in _fields(model).items() if not list(_models(field.annotation))
    }
    if plain:
        yield "| key | type | default | meaning |\n|---|---|---|---|"
        yield from (_row(name, field, docs.get(name, "")) for name, field in plain.items())
        yield ""
    for name, field in _fields(model).items():
        for inner in _models(field.annotation):
            if inner.__name__ in SHARED:
                page = SHARED[inner.__name__]
                yield f"**`[{prefix}{name}]`**: has [a page of its own]({page}.md).\n"
                continue
            yield f"{_heading(prefix + name, field, inner)}: {_first_paragraph(inner)}\n"
            yield from _tables(inner, f"{prefix}{name}.")


def _heading(name: str, field: FieldInfo, inner: Model) -> str:
    repeated = "tuple" in str(field.annotation) or "list" in str(field.annotation)
    kind = _fields(inner).get("type")
    of_type = (
        f' with `type = "{get_args(kind.annotation)[0]}"`'
        if kind and get_args(kind.annotation) and repeated
        else ""
    )
    named = ".NAME" if "dict[" in str(field.annotation) else ""
    return f"**`[[{name}]]`**{of_type}" if repeated else f"**`[{name}{named}]`**"


def _first_paragraph(model: Model) -> str:
    return " ".join((inspect.getdoc(model) or "").partition("\n\n")[0].split())


def _row(name: str, field: FieldInfo, doc: str) -> str:
    default = field.get_default(call_default_factory=True)
    shown = "**required**" if default is PydanticUndefined else f"`{_value(default)}`"
    return f"| `{name}` | {_type(field)} | {shown} | {_cell(doc)} |"


def _value(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case str() | Path():
            return f'"{value}"'
        case tuple() | list() | frozenset():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case dict() if not value:
            return "{}"
    return str(value)


def _type(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(m, name)}"
        for m in field.metadata
        for name, sign in SIGNS.items()
        if getattr(m, name, None) is not None
    ]
    return " ".join([_name(field.annotation), *([f"({', '.join(bounds)})"] if bounds else [])])


SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _name(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_name(part) for part in get_args(annotation) if part is not type(None))
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in get_args(annotation))
    if origin is dict:
        return f"table of {_name(get_args(annotation)[1])}"
    if origin is not None:
        return f"list of {_name(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, str) and annotation is not str:
        return " or ".join(f'`"{member}"`' for member in annotation)  # type: ignore[attr-defined]
    return {
        "str": "text",
        "int": "integer",
        "float": "number",
        "bool": "true or false",
        "Path": "path",
    }.get(getattr(annotation, "__name__", ""), getattr(annotation, "__name__", str(annotation)))


def _models(annotation: Any) -> Iterator[Model]:
    """The models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel | Plain):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def attribute_docs(model: Model) -> Mapping[str, str]:
    """The strings that stand under a model's fields, its bases' included."""
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel | Plain) and cls not in (BaseModel, Plain):
            tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
            body = tree.body[0].body  # type: ignore[attr-defined]
            for field, text in pairwise(body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                        value=ast.Constant(value=str(doc))
                    ):
                        docs[name] = doc
    return docs


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# The rest
# --------------------------------------------------------------------------------------------------


def sources() -> str:
    """The keys of every kind of source that comes with Edgewake, beside those that all have.

    Those of maps, which many have, stand before them.
    """
    shared = set(_fields(_load("edge.sources.config:SourceConfig")))
    mapped = _load("edge.sources.mapping:MappedConfig")
    lines = [f"**Maps**, at the kinds that say so. {_first_paragraph(mapped)}", ""]
    rows = {key: field for key, field in _fields(mapped).items() if key not in shared}
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [_row(key, field, attribute_docs(mapped)[key]) for key, field in rows.items()]
    lines.append("")
    for name in _load("edge.sources.config:BUILT_IN"):
        model = _load("edge.sources.config:kind")(name)
        docs = attribute_docs(model)
        known = shared | set(rows) if issubclass(model, mapped) else shared
        own = {key: field for key, field in _fields(model).items() if key not in known}
        maps = " It may have maps." if issubclass(model, mapped) else ""
        lines += [f'**`type = "{name}"`**: {_first_paragraph(model)}{maps}', ""]
        plain = {key: field for key, field in own.items() if not list(_models(field.annotation))}
        if plain:
            lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
            lines += [*(_row(key, field, docs.get(key, "")) for key, field in plain.items()), ""]
        for key, field in own.items():
            for inner in _models(field.annotation):
                lines += [
                    f"{_heading('source.' + key, field, inner)}: {_first_paragraph(inner)}",
                    "",
                    *_tables(inner, f"source.{key}."),
                ]
    return "\n".join(lines)


def doc(module: str) -> str:
    """A module's docstring: the contract as its readers see it."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return f"```text\n{text}\n```"


def names() -> str:
    """The preset dictionary of packed frames, a line broken behind each name that would not fit."""
    text = _load("protocol.frames.packed:NAMES").decode()
    lines = textwrap.wrap(text.replace(",", ", "), 100)
    return "```text\n" + "\n".join(line.replace(", ", ",") for line in lines) + "\n```"


def queries() -> str:
    """The built-in queries: name and what their first comment says."""
    rows = ["| query | what it answers |", "|---|---|"]
    for path in sorted((ROOT / "cloud/queries/built_in").glob("*.sql")):
        described = re.search(r"^--\s*description:\s*(.+)$", path.read_text(), re.MULTILINE)
        rows.append(
            f"| [`{path.stem}`](../cloud/queries/built_in/{path.name}) | "
            f"{_cell(described[1]) if described else ''} |"
        )
    return "\n".join(rows)


def commands() -> str:
    """Every command of `edgewake` with what it does."""
    lines = _load("deploy.cli:HELP")
    return "\n".join(
        [
            "| command | what it does |",
            "|---|---|",
            *(f"| `edgewake {name}` | {_cell(text)} |" for name, text in lines.items()),
        ]
    )


def reasons() -> str:
    """Why a message becomes a dead letter, with the comment beside each reason."""
    return _reasons("protocol/errors.py")


def later() -> str:
    """Why a message is not accepted now."""
    return _reasons("protocol/frames/ack.py")


def _reasons(file: str) -> str:
    found = _members(file).items()
    return "\n".join(
        ["| reason | when |", "|---|---|", *(f"| `{name}` | {_cell(why)} |" for name, why in found)]
    )


MEMBER = re.compile(
    r'(?P<above>(?:^    # .+\n)*)^    [A-Z_]+ = "(?P<name>\w+)"(?:  # (?P<beside>.+))?$',
    re.MULTILINE,
)


def _members(file: str) -> dict[str, str]:
    """Members of an enum of texts: value → its comment, beside the member or above it."""
    found = MEMBER.finditer((ROOT / file).read_text())
    told = {one["name"]: one["beside"] or re.sub(r"\s*# ", " ", one["above"]) for one in found}
    return {name: comment.strip() for name, comment in told.items() if comment}


def remarks() -> str:
    """The remarks of processors, with what each means."""
    found = re.findall(
        r'^    [A-Z_]+ = "(\w+)"\n    """(.+?)"""',
        (ROOT / "edge/processors/processor.py").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return "\n".join(
        ["| remark | when |", "|---|---|", *(f"| `{name}` | {_cell(why)} |" for name, why in found)]
    )


def presets() -> str:
    """The presets: what each is for, its page, and the streams that it gives."""
    from edgewake.protocol.maps import presets as shipped
    from edgewake.protocol.maps.compiling import compile_presets

    pages = preset_pages()
    rows = ["| what you have | `presets` | streams |", "|---|---|---|"]
    for name in shipped.names():
        maps = compile_presets([name]).maps
        streams = dict.fromkeys(
            "".join(map(_piece, one.stream.pieces)) for one in maps if one.stream
        )
        listed = ", ".join(f"`{stream}`" for stream in streams)
        about = _cell(shipped.about(name))
        rows.append(f"| {about} | [`{name}`](devices/{pages[name]}) | {listed} |")
    return "\n".join(rows)


def _piece(piece: object) -> str:
    return piece if isinstance(piece, str) else "…"


def preset_pages() -> dict[str, str]:
    """Preset → the file in docs/devices that shows what its streams have."""
    return {
        name: page.name
        for page in sorted((ROOT / "docs/devices").glob("*.md"))
        for block in BLOCK.finditer(page.read_text())
        if block["order"].startswith("preset-fields ")
        for name in block["order"].split()[1:]
    }


NOW_MS = 1_772_355_000_000
"""When messages of examples come: half an hour after what most of them say."""


def _messages(preset: str) -> list[tuple[str, str]]:
    """Topic and payload of each message that tests/payloads has of a preset."""
    folder = ROOT / "tests/payloads" / preset.replace("-", "_")
    said = [one for file in sorted(folder.glob("*.json")) for one in _said(file)]
    return [(one["topic"], _as_text(one["payload"])) for one in said]


def _said(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["messages"]
    return found


def _as_text(payload: object) -> str:
    return payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)


def preset_example(name: str, topic: str) -> str:
    """The message of a topic that gives the most fields, as it comes, and what it becomes."""
    from edgewake.protocol.maps.compiling import compile_presets
    from edgewake.protocol.maps.preview import lines, preview

    maps = compile_presets([name], needs_names=True)
    seen = {
        payload: preview(maps, topic, payload.encode(), now_ms=NOW_MS)
        for at, payload in _messages(name)
        if at == topic
    }
    payload = max(seen, key=lambda one: sum(len(each.fields) for each in seen[one].stored))
    came = textwrap.fill(f"{topic} {payload}", 120, subsequent_indent="    ")
    _, *became = lines(maps, topic, seen[payload], NOW_MS)
    return "\n".join(["```text", came, *became, "```"])


STREAMS_SHOWN = 20
FIELDS_SHOWN = 16


def preset_fields(*names: str) -> str:
    """Streams and fields with types and units that the messages in tests/payloads become."""
    from edgewake.protocol.maps.compiling import compile_presets
    from edgewake.protocol.maps.preview import preview

    streams: dict[str, dict[str, str]] = {}
    for name in names:
        maps = compile_presets([name], needs_names=True)
        for topic, payload in _messages(name):
            for one in preview(maps, topic, payload.encode(), now_ms=NOW_MS).stored:
                fields = streams.setdefault(one.stream, {})
                for field, value in one.fields.items():
                    if value is not None and not field.endswith("_odd"):
                        fields.setdefault(field, _field_words(field, value, one.units))
    rows = ["| stream | fields, as `edgewake streams show` lists them |", "|---|---|"]
    for stream, fields in list(streams.items())[:STREAMS_SHOWN]:
        more = [f"and {len(fields) - FIELDS_SHOWN} more"] if len(fields) > FIELDS_SHOWN else []
        rows.append(f"| `{stream}` | {', '.join([*fields.values()][:FIELDS_SHOWN] + more)} |")
    return "\n".join(rows)


def _field_words(field: str, value: object, units: Mapping[str, str]) -> str:
    kind = {bool: "boolean", str: "string"}.get(type(value), "number")
    return f"`{field}` {kind} {units.get(field, '')}".strip()


def states() -> str:
    """The states of a lease, their meanings, and their transitions, from the proxy's own table."""
    meanings = _members("protocol/leases/lease_record.py")
    follows: dict[str, list[str]] = {name: [] for name in meanings}
    for (state, event), after in _load("cloud.push.leases.lease_state:TRANSITIONS").items():
        follows[state].append(f"{event.name} → {after}")
    rows = [
        f"| `{name}` | {_cell(meaning)} | {', '.join(sorted(follows[name])) or 'nothing'} |"
        for name, meaning in meanings.items()
    ]
    return "\n".join(["| state | meaning | what may follow |", "|---|---|---|", *rows])


def endpoints(*files: str) -> str:
    """Routes of FastAPI applications: method, path, and the function's docstring.

    Paragraphs about single parameters are left out.
    """
    nodes = [node for file in files for node in ast.walk(ast.parse((ROOT / file).read_text()))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    by_name = {node.name: node for node in functions}
    added = [
        (by_name[name], method, path)
        for node in nodes
        for name, method, path in _added_routes(node)
    ]
    found = added + [(node, method, path) for node in functions for method, path in _routes(node)]
    rows = [f"| {method} | `{path}` | {_cell(_summary(node))} |" for node, method, path in found]
    return "\n".join(["| method | path | what it does |", "|---|---|---|", *rows])


def _summary(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    return " ".join(" ".join(each for each in paragraphs if not each.startswith("`")).split())


def _routes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Constant(value=path), *_]) if (
                method in METHODS
            ):
                yield method.upper(), str(path)


def _added_routes(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """`app.add_api_route("/path", self.name, methods=["GET"])`: (name, method, path)."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="add_api_route"),
            args=[ast.Constant(value=path), ast.Attribute(attr=name), *_],
        ):
            for keyword in node.keywords:
                if keyword.arg == "methods":
                    yield from (
                        (name, str(method), str(path)) for method in ast.literal_eval(keyword.value)
                    )


METHODS = ("get", "post", "put", "patch", "delete")


def functions() -> str:
    """The functions of queries, by name."""
    names = sorted(_load("cloud.queries.terms.functions:NAMES"))
    return "\n".join(
        textwrap.wrap(", ".join(f"`{name}`" for name in names), 100, break_on_hyphens=False)
    )


def rooms(*floors: str) -> str:
    """Every folder of these floors with what its `__init__.py` says first.

    Modules that lie in `cloud/` itself are among them.
    """
    found = [
        (f"{path.parent.relative_to(ROOT)}/", path)
        for floor in floors
        for path in sorted((ROOT / floor).rglob("__init__.py"))
    ]
    if "cloud" in floors:
        alone = [path for path in sorted((ROOT / "cloud").glob("*.py")) if path.stem != "__init__"]
        found[1:1] = [(str(path.relative_to(ROOT)), path) for path in alone]
    rows = [f"| `{name}` | {_cell(_first_line(path))} |" for name, path in found]
    return "\n".join(["| room | what it is for |", "|---|---|", *rows])


def _first_line(file: Path) -> str:
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")[0]


MAKERS: Mapping[str, Callable[..., str]] = {
    "config": config, "doc": doc, "queries": queries, "commands": commands, "reasons": reasons,
    "later": later, "states": states,
    "endpoints": endpoints, "functions": functions, "remarks": remarks, "sources": sources,
    "names": names, "presets": presets, "preset-example": preset_example,
    "preset-fields": preset_fields, "rooms": rooms,
}  # fmt: skip


def stale() -> list[Path]:
    """The documents that `main` would change."""
    return [path for path in FILES if render(path.read_text()) != path.read_text()]


def main() -> None:
    """Rewrite, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 where something would change"
    )
    check = parser.parse_args().check
    changed = stale()
    for path in changed:
        print(f"{'would change' if check else 'wrote'} {path.relative_to(ROOT)}")  # noqa: T201
        if not check:
            path.write_text(render(path.read_text()))
    sys.exit(1 if check and changed else 0)


if __name__ == "__main__":
    main()

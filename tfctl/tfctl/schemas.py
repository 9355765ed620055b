"""The JSON schemas of every document that tfctl prints: `python -m tfctl.schemas FOLDER` writes docs/schemas."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import tfctl.documents
import tfctl.host_documents
import tokenflow.loadgen.bench_record
import tokenflow.sim.document
import tokenflow.tuning
import tokenflow.wire
from tokenflow.wire import Document, schema_name


def document_kinds() -> dict[str, type[Document]]:
    """Every kind of document by the value of its `schema` field, sorted."""
    kinds = {schema_name(kind): kind for kind in _children(Document)}
    return dict(sorted(kinds.items()))


def schema_of(name: str) -> dict[str, Any]:
    """The JSON schema of the documents whose `schema` is `name`. Raises KeyError for an unknown one."""
    schema = msgspec.json.schema(document_kinds()[name], ref_template="#/$defs/{name}")
    definition = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    definition["properties"]["schema"] = {"const": name}
    definition["properties"]["version"] = {"type": "string"}  # any release's, not this one's
    definition["required"] = sorted(definition["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **schema}


def file_name(name: str) -> str:
    """`tokenflow.status/1` → `status.1.schema.json`"""
    return name.removeprefix("tokenflow.").replace("/", ".") + ".schema.json"


def render(name: str) -> str:
    """The contents of the schema's file."""
    return json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"


def _children(kind: type[Document]) -> Iterator[type[Document]]:
    modules = (
        tokenflow.wire.__name__,
        tokenflow.tuning.__name__,
        tokenflow.loadgen.bench_record.__name__,
        tokenflow.sim.document.__name__,
        tfctl.documents.__name__,
        tfctl.host_documents.__name__,
    )
    for child in kind.__subclasses__():
        if child.__module__ in modules:
            yield child
        yield from _children(child)


def main(folder: Path) -> None:
    """Writes one file a document and removes those of documents that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {file_name(name): render(name) for name in document_kinds()}
    for path in folder.glob("*.schema.json"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

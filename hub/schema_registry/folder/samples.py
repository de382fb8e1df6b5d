"""[core] Read samples from files: JSON, JSON lines, CSV and XML, one value at a time, within limits.

CSV and XML have only text; ``infer.py`` decides over all samples which of them are numbers. XML is parsed
by expat with document types refused, so entities are not expanded and nothing is fetched. XML records are
the children of the root when all have one name, else the root itself; an attribute is a field like an
element, and text next to them is ``text``.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from hub.errors import ConfigError

MOST_BYTES = 64 << 20
MOST_DEPTH = 64
MOST_COLUMNS = 5_000
_SUFFIXES = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".xml": "xml",
}
_DELIMITERS = ",;\t|"


def format_of(name: str) -> str | None:
    """Return the format by a file's name; None for an unknown one."""
    return next((known for suffix, known in _SUFFIXES.items() if name.lower().endswith(suffix)), None)


def samples(content: bytes, kind: str, where: str) -> Iterator[Any]:
    """Return the values in a file's content; ``where`` names it.

    Raises ConfigError (HUB-1107) with line and column.
    """
    if len(content) > MOST_BYTES:
        raise ConfigError(
            f"larger than {MOST_BYTES >> 20} MiB", where=where, hint="a part of it is enough", code="HUB-1107"
        )
    if kind == "xml":
        return _xml(content, where)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _wrong(where, "not UTF-8 text", "save it as UTF-8", line) from None
    return {"json": _json, "jsonl": _jsonl, "csv": _csv}[kind](text, where)


def _wrong(where: str, message: str, hint: str, line: int = 1, column: int = 1) -> ConfigError:
    return ConfigError(message, where=f"{where}:{line}:{column}", hint=hint, code="HUB-1107")


def _json(text: str, where: str) -> Iterator[Any]:
    value = _loaded(text, where, 0)
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _jsonl(text: str, where: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n")):  # not splitlines: JSON may hold U+2028
        if line.strip():
            yield _loaded(line, where, number)


def _loaded(text: str, where: str, lines_before: int) -> Any:
    try:
        value = json.loads(text, parse_constant=_refused)
    except json.JSONDecodeError as error:
        hint = (
            "one JSON value a line is jsonl: --format jsonl"
            if error.msg == "Extra data"
            else "correct the file"
        )
        raise _wrong(
            where, f"not JSON: {error.msg}", hint, lines_before + error.lineno, error.colno
        ) from None
    except RecursionError:
        raise _wrong(where, "nested too deep", "is a bracket wrong?", lines_before + 1) from None
    except ValueError as error:
        raise _wrong(where, f"not JSON: {error}", "correct the file", lines_before + 1) from None
    if _deeper_than(value, MOST_DEPTH):
        raise _wrong(where, f"nested deeper than {MOST_DEPTH}", "is it data?", lines_before + 1)
    if "\\ud" in text.lower():  # may be a surrogate from a truncated text, which UTF-8 does not allow
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _deeper_than(value: Any, most: int) -> bool:
    left = [(value, 0)]
    while left:
        node, depth = left.pop()
        if depth > most:
            return True
        if isinstance(node, dict):
            left.extend((each, depth + 1) for each in node.values())
        elif isinstance(node, list):
            left.extend((each, depth + 1) for each in node)
    return False


def _csv(text: str, where: str) -> Iterator[Any]:
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)  # with equal counts the first wins: the comma
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        if not any(name.strip() for name in names):
            raise _wrong(where, "the first line has no names of columns", "put the names there")
        if len(names) > MOST_COLUMNS:
            raise _wrong(where, f"{len(names)} columns, {MOST_COLUMNS} are allowed", "is it CSV?")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _wrong(where, f'the column "{twice}" occurs twice', "rename one of the two")
        for row in reader:
            if len(row) > len(names):
                message = f"{len(row)} values, but {len(names)} names in the first line"
                raise _wrong(where, message, "quote values that have the delimiter in them", reader.line_num)
            if row:
                yield {name: value for name, value in zip(names, row, strict=False) if value != ""}
    except csv.Error as error:
        raise _wrong(where, f"no CSV: {error}", "is a quote missing?", max(1, reader.line_num)) from None


class _XmlRefused(Exception):
    """XML content that expat must not parse further."""


class _Element:
    """An open element: its fields so far, and its text."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.fields: dict[str, Any] = {}
        self.text: list[str] = []
        for key, value in attributes.items():
            local = _local(key)
            if key != "xmlns" and not key.startswith(("xmlns:", "xsi:")):
                self.add(local, value)

    def add(self, name: str, value: Any) -> None:
        """Add a field; a second value of a name makes a list."""
        if name not in self.fields:
            self.fields[name] = value
        elif isinstance(self.fields[name], list):
            self.fields[name].append(value)
        else:
            self.fields[name] = [self.fields[name], value]

    def value(self) -> Any:
        text = "".join(self.text).strip()
        if not self.fields:
            return text or None
        if text:
            self.add("text", text)
        return self.fields


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _xml(content: bytes, where: str) -> Iterator[Any]:
    parser = expat.ParserCreate()
    open_: list[_Element] = []
    children: list[tuple[str, Any]] = []
    root: list[Any] = []

    def refuse(*_: Any) -> None:
        raise _XmlRefused("a document type or an entity is declared")

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(open_) >= MOST_DEPTH:
            raise _XmlRefused(f"nested deeper than {MOST_DEPTH}")
        open_.append(_Element(_local(name), attributes))

    def end(_: str) -> None:
        element = open_.pop()
        if not open_:
            root.append(element.value())
            return
        value = element.value()
        if len(open_) == 1:
            children.append((element.name, value))
        open_[-1].add(element.name, value)

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = lambda text: open_[-1].text.append(text)
    try:
        parser.Parse(content, True)
    except _XmlRefused as refused:
        line, column = parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
        raise _wrong(
            where, f"XML that is not read: {refused}", "take it out of the file", line, column
        ) from None
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code] if error.code in expat.errors.messages else str(error)
        raise _wrong(where, f"no XML: {reason}", "correct the file", error.lineno, error.offset + 1) from None
    if (
        children
        and len({name for name, _ in children}) == 1
        and any(isinstance(each, dict) for _, each in children)
    ):
        yield from (each for _, each in children)
    else:
        yield root[0]

"""[shell] The statements of a Flink SQL file, taken in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hub.importing.checking import ProjectCopy
from hub.importing.flink.declared import read_declaration
from hub.importing.flink.queries import FlinkQuery, QueryWriter
from hub.importing.made_files import put_topic, put_view
from hub.importing.project_files import ProjectFiles
from hub.importing.relations import Relation, RelationCatalog
from hub.importing.report import (
    NotTranslated,
    StatementReport,
    StatementTranslation,
    refused_report,
    translated_report,
)
from hub.importing.statements import Statement, StatementReader, statements_of

_OTHERS: Mapping[str, str] = {
    "SELECT": "run it in hub sql, or make a CREATE VIEW of it",
    "WITH": "run it in hub sql, or make a CREATE VIEW of it",
    "SHOW": "hub view ls, hub topic tree",
    "DESCRIBE": "hub view show NAME",
    "EXPLAIN": "hub view explain NAME",
    "USE": "a project has one space of names",
    "CREATE CATALOG": "topics and schemas are in the project and in the hub's registry",
    "CREATE DATABASE": "a topic's name has its space: shop.orders",
    "CREATE FUNCTION": "a Python function: docs/how-to/use-python-functions.md",
    "CREATE TEMPORARY FUNCTION": "a Python function: docs/how-to/use-python-functions.md",
    "CREATE TEMPORARY SYSTEM FUNCTION": "a Python function: docs/how-to/use-python-functions.md",
    "ADD JAR": "a Python function: docs/how-to/use-python-functions.md",
    "ALTER": "change the CREATE statement",
    "UPDATE": "events are not changed: write a new one",
    "DELETE": "events are not changed: write a tombstone",
    "TRUNCATE": "retention of the topic: topics.yaml",
    "ANALYZE": "hub view explain NAME",
    "STOP": "remove the view's file",
}
_SETTINGS: Mapping[str, str] = {
    "execution.runtime-mode": "a view is computed from its history, then live",
    "execution.checkpointing.interval": "each batch is a checkpoint",
    "execution.checkpointing.mode": "rows and positions are one transaction: each event counts once",
    "parallelism.default": "a view has as many tasks as its topics have partitions",
    "pipeline.name": "a view has its own name",
    "sql-client.execution.result-mode": "answers of hub sql are tables",
    "table.local-time-zone": "times are in UTC",
    "table.exec.mini-batch.enabled": "events are computed in batches",
    "table.exec.mini-batch.size": "events are computed in batches",
    "table.exec.mini-batch.allow-latency": "events are computed in batches",
}


@dataclass(frozen=True, slots=True)
class _Target:
    """A declared table that INSERT INTO may fill. ``topic``: where Flink writes its rows."""

    relation: Relation
    topic: str


class FlinkImport:
    """Takes the statements of one file. ``files`` has the result."""

    def __init__(self, files: ProjectFiles, copy: ProjectCopy) -> None:
        self.files, self.copy = files, copy
        self.catalog = RelationCatalog()
        self.targets: dict[str, _Target] = {}
        self.filled: set[str] = set()
        self.views: set[str] = set()

    def take(self, text: str) -> list[StatementReport]:
        """Take all statements. Never raises because of one of them."""
        statements = [each for each in map(_without_statement_set, statements_of(text)) if each is not None]
        self.filled = {name for each in statements if (name := _filled_table(each)) is not None}
        return [self._translate(each) for each in statements]

    def _translate(self, statement: Statement) -> StatementReport:
        translation = StatementTranslation()
        made, relations = dict(self.files.made), dict(self.catalog.relations)
        try:
            self._take(StatementReader(statement.text, statement.tokens), translation)
        except NotTranslated as error:
            self.files.undo(made)
            self.catalog.relations = relations
            return refused_report(statement.line, statement.text, error)
        return translated_report(statement.line, statement.text, translation)

    def _take(self, reader: StatementReader, translation: StatementTranslation) -> None:
        if reader.take("CREATE TABLE", "CREATE TEMPORARY TABLE"):
            self._table(reader, translation)
        elif reader.take("CREATE VIEW", "CREATE TEMPORARY VIEW", "CREATE OR REPLACE VIEW"):
            self._view(reader, translation)
        elif reader.take("INSERT INTO", "INSERT OVERWRITE"):
            self._insert(reader, translation)
        elif reader.take("DROP"):
            self._drop(reader, translation)
        elif reader.take("SET", "RESET"):
            self._set(reader, translation)
        else:
            for phrase, instead in _OTHERS.items():
                if reader.take(phrase):
                    raise NotTranslated(f"{phrase} declares nothing that could be a file", instead)
            raise NotTranslated(f'"{reader.shown()}" begins no statement that is known', "check its spelling")

    def _table(self, reader: StatementReader, translation: StatementTranslation) -> None:
        reader.take("IF NOT EXISTS")
        name = _name(reader)
        if reader.peek() == "AS":
            raise NotTranslated("CREATE TABLE AS has no connector", "CREATE VIEW AS SELECT")
        declaration = read_declaration(reader, name, self.catalog, translation)
        self.catalog.relations[name] = declaration.relation
        self.targets[name] = _Target(declaration.relation, declaration.topic)
        if name in self.filled:
            topic = declaration.topic
            translation.differ(
                f"INSERT INTO makes it a view; events that others write into {topic} are not in it"
            )
            return
        put_topic(self.files, self.copy, declaration, translation)

    def _view(self, reader: StatementReader, translation: StatementTranslation) -> None:
        reader.take("IF NOT EXISTS")
        name = _name(reader)
        names = tuple(part[0].text for part in reader.lists()) if reader.peek() == "(" else ()
        if reader.take("COMMENT"):
            reader.next()
        reader.need("AS")
        query = self._query(
            reader, QueryWriter(self.catalog, translation, tuple(each.lower() for each in names))
        )
        view = _view_name(name)
        self._put(view, query, f"From Flink SQL: CREATE VIEW {name}.", translation)
        self.catalog.relations[name] = query.relation(name, view)

    def _insert(self, reader: StatementReader, translation: StatementTranslation) -> None:
        name = _name(reader)
        if reader.peek() == "(":
            raise NotTranslated("INSERT INTO with a list of columns", "select all columns of the target")
        if reader.take("VALUES"):
            raise NotTranslated("INSERT INTO … VALUES writes events", "hub topic publish TOPIC")
        target = self.targets.get(name)
        if target is None:
            raise NotTranslated(f"{name} is not a taken table", "declare it with the connector kafka")
        view = _view_name(name)
        if view in self.views:
            raise NotTranslated(f"a second INSERT INTO {name}", "one INSERT INTO with UNION ALL")
        names = tuple(_view_name(each) for each in target.relation.columns)
        key = tuple(_view_name(each) for each in target.relation.key)
        query = self._query(reader, QueryWriter(self.catalog, translation, names, key))
        translation.differ(f'the rows are in the topic "views.{view}", not in "{target.topic}", as Avro')
        self._put(view, query, f"From Flink SQL: INSERT INTO {name}.", translation)
        self.catalog.relations[name] = query.relation(name, view)

    @staticmethod
    def _query(reader: StatementReader, writer: QueryWriter) -> FlinkQuery:
        return writer.written(reader.text, reader.tokens[reader.at :])

    def _put(self, view: str, query: FlinkQuery, doc: str, translation: StatementTranslation) -> None:
        put_view(self.files, self.copy, view, query.sql, query.sources, query.key, {"doc": doc}, translation)
        self.views.add(view)

    def _drop(self, reader: StatementReader, translation: StatementTranslation) -> None:
        reader.take("TEMPORARY")
        kind = reader.next().upper
        reader.take("IF EXISTS")
        name = _name(reader)
        if self.catalog.relations.pop(name, None) is None:
            raise NotTranslated(
                f"DROP {kind} {name}: no statement before this one makes it", "remove its file"
            )
        translation.differ("its files stay; only later statements no longer see it")

    def _set(self, reader: StatementReader, translation: StatementTranslation) -> None:
        name = reader.next().text
        while not reader.ended and reader.peek() not in ("", "="):
            name += reader.next().text
        if name not in _SETTINGS:
            raise NotTranslated(
                f"the setting {name} has no meaning in the hub", "settings: docs/reference/settings.md"
            )
        translation.note(_SETTINGS[name])


def _without_statement_set(statement: Statement) -> Statement | None:
    """Return a statement without the keywords of a statement set around it; None for nothing but these."""
    text = re.sub(
        r"^(EXECUTE\s+STATEMENT\s+SET\s+)?BEGIN(\s+STATEMENT\s+SET)?\b\s*",
        "",
        statement.text,
        flags=re.IGNORECASE,
    )
    if re.fullmatch(r"(END|BEGIN\s+STATEMENT\s+SET|)", text.strip(), re.IGNORECASE):
        return None
    statements = statements_of(text)
    return Statement(text, statement.line, statements[0].tokens) if statements else None


def _filled_table(statement: Statement) -> str | None:
    tokens = statement.tokens
    if len(tokens) > 3 and tokens[0].upper == "INSERT" and tokens[3].upper != "VALUES":
        return tokens[2].text
    return None


def _name(reader: StatementReader) -> str:
    """Return the last part of a name, in its own case."""
    token = reader.next()
    while reader.take("."):
        token = reader.next()
    return token.text


def _view_name(name: str) -> str:
    found = re.sub(r"\W+", "_", name.lower()).strip("_")
    return found if re.match(r"[a-z]", found) else f"v_{found}"

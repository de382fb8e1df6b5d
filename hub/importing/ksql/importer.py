"""[shell] The statements of a ksqlDB file, taken in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hub.importing.checking import ProjectCopy
from hub.importing.column_types import read_type
from hub.importing.ksql.connectors import connector
from hub.importing.ksql.declared import column_name, quoted, read_declaration
from hub.importing.ksql.names import PLACE, plain_name
from hub.importing.ksql.query import query_of
from hub.importing.ksql.views import ViewSelect, ViewWriter
from hub.importing.made_files import put_topic, put_view
from hub.importing.project_files import ProjectFiles
from hub.importing.relations import ImportedColumn, Kind, Relation, RelationCatalog
from hub.importing.report import (
    NotTranslated,
    StatementReport,
    StatementTranslation,
    refused_report,
    translated_report,
)
from hub.importing.statements import Statement, StatementReader, statements_of, substituted, tokenize

# Statements that declare nothing, with what does the same in the hub.
_OTHERS: Mapping[str, str] = {
    "SHOW": "hub view ls, hub topic tree, hub connector ls",
    "LIST": "hub view ls, hub topic tree, hub connector ls",
    "DESCRIBE": "hub view show NAME, or DESCRIBE in hub sql",
    "EXPLAIN": "hub view explain NAME",
    "PRINT": "SELECT * FROM topic EMIT CHANGES in hub sql",
    "SELECT": "run it in hub sql, or make a CREATE … AS SELECT of it for a view",
    "TERMINATE": "remove the view's file",
    "PAUSE": "remove the view's file; the rows stay",
    "RESUME": "put the view's file back",
    "ASSERT": "hub topic plan and hub schema plan compare the cluster with the files",
    "RUN": "import the file that it names",
    "SPOOL": "redirect the output of hub sql",
    "ALTER SYSTEM": "settings are in hub.yaml",
}
_SETTINGS: Mapping[str, str] = {
    "auto.offset.reset": "a view reads its topics from their start",
    "processing.guarantee": "rows and positions are one transaction: each event counts once",
    "commit.interval.ms": "batches follow each other without a pause",
    "cache.max.bytes.buffering": "the rows of a batch are written at once",
    "ksql.streams.auto.offset.reset": "a view reads its topics from their start",
    "ksql.streams.processing.guarantee": "rows and positions are one transaction: each event counts once",
    "ksql.streams.cache.max.bytes.buffering": "the rows of a batch are written at once",
    "ksql.streams.commit.interval.ms": "batches follow each other without a pause",
}


@dataclass
class _ImportedView:
    """A view that the import makes, of one or several SELECTs."""

    name: str
    doc: str
    more: dict[str, object] = field(default_factory=dict)
    selects: list[ViewSelect] = field(default_factory=list)
    columns: tuple[str, ...] = ()


class KsqlImport:
    """Takes the statements of one file. ``files`` has the result."""

    def __init__(self, files: ProjectFiles, copy: ProjectCopy) -> None:
        self.files, self.copy = files, copy
        self.catalog = RelationCatalog()
        self.variables: dict[str, str] = {}
        self.views: dict[str, _ImportedView] = {}
        self.fed: set[str] = set()

    def take(self, text: str) -> list[StatementReport]:
        """Take all statements. Never raises because of one of them."""
        statements = statements_of(text)
        self.fed = {name for each in statements if (name := _fed_stream(each)) is not None}
        return [self._translate(each) for each in statements]

    def _translate(self, statement: Statement) -> StatementReport:
        translation = StatementTranslation()
        made, relations = dict(self.files.made), dict(self.catalog.relations)
        try:
            whole = substituted(statement, self.variables)
            self._take(StatementReader(whole.text, whole.tokens), translation)
        except NotTranslated as error:
            self.files.undo(made)
            self.catalog.relations = relations
            return refused_report(statement.line, statement.text, error)
        return translated_report(statement.line, statement.text, translation)

    def _take(self, reader: StatementReader, translation: StatementTranslation) -> None:
        for phrase, action in self._actions().items():
            if reader.take(phrase):
                action(reader, translation)
                return
        for phrase, instead in _OTHERS.items():
            if reader.take(phrase):
                raise NotTranslated(f"{phrase} declares nothing that could be a file", instead)
        raise NotTranslated(f'"{reader.shown()}" begins no statement that is known', "check its spelling")

    def _actions(self) -> Mapping[str, Callable[[StatementReader, StatementTranslation], None]]:
        return {
            "CREATE TYPE": self._type,
            "CREATE SOURCE CONNECTOR": self._connector,
            "CREATE SINK CONNECTOR": self._connector,
            "CREATE": self._create,
            "INSERT INTO": self._insert,
            "DROP": self._drop,
            "ALTER STREAM": self._alter,
            "ALTER TABLE": self._alter,
            "DEFINE": self._define,
            "UNDEFINE": self._undefine,
            "SET": self._set,
            "UNSET": self._set,
        }

    # ---- CREATE

    def _create(self, reader: StatementReader, translation: StatementTranslation) -> None:
        reader.take("OR REPLACE")
        is_source = reader.take("SOURCE")
        keyword = reader.next().upper
        if keyword not in ("STREAM", "TABLE"):
            raise NotTranslated(
                f"CREATE {keyword} is not a statement of ksqlDB", "CREATE STREAM or CREATE TABLE"
            )
        kind: Kind = "stream" if keyword == "STREAM" else "table"
        reader.take("IF NOT EXISTS")
        name = reader.name()
        if reader.peek() == "(" or (reader.peek() == "WITH" and not _is_query(reader)):
            self._declare(reader, kind, name, translation)
            if is_source and kind == "table":
                relation = self.catalog.relations[name]
                self._view(f"{name}_rows", f"SELECT * FROM `{name}`", {}, f"The rows of {name}.", translation)
                self.catalog.relations[name] = relation
            return
        options = reader.options() if reader.take("WITH") else {}
        reader.need("AS")
        start = reader.tokens[reader.at].start if not reader.ended else len(reader.text)
        doc = f"From ksqlDB: CREATE {keyword} {name}."
        self._view(name, reader.text[start:], options, doc, translation, kind)

    def _declare(
        self, reader: StatementReader, kind: Kind, name: str, translation: StatementTranslation
    ) -> None:
        declaration = read_declaration(reader, kind, name, self.catalog, translation)
        if not reader.ended:
            raise NotTranslated(f'"{reader.shown()}" is not expected behind WITH (…)', "remove it")
        if name in self.fed:
            self._declare_fed(name, declaration.relation, declaration.topic, translation)
            return
        self.catalog.relations[name] = declaration.relation
        put_topic(self.files, self.copy, declaration, translation)

    def _declare_fed(
        self, name: str, relation: Relation, topic: str, translation: StatementTranslation
    ) -> None:
        """Declare a stream that INSERT INTO feeds: it becomes a view."""
        translation.differ(
            f"INSERT INTO makes it a view; events that others write into {topic} are not in it"
        )
        names = [*relation.columns, *PLACE, "rowtime"]
        view = plain_name(name)
        self.views[name] = _ImportedView(view, f"From ksqlDB: CREATE STREAM {name}.", columns=tuple(names))
        columns = {each: ImportedColumn(each, of.type) for each, of in relation.columns.items()}
        self.catalog.relations[name] = replace(
            relation, source={"view": view}, columns=columns, time="rowtime", event_time="rowtime", view=view
        )

    def _view(
        self,
        name: str,
        text: str,
        options: Mapping[str, str],
        doc: str,
        translation: StatementTranslation,
        kind: Kind | None = None,
    ) -> None:
        query = query_of(text, tokenize(text))
        time = options.get("timestamp", "").strip("`").lower()
        select = ViewWriter(query, self.catalog, translation).written(with_topic=name in self.fed, time=time)
        if kind is not None and select.kind != kind:
            raise NotTranslated(
                f"the query makes a {select.kind}, not a {kind}",
                f"CREATE {select.kind.upper()} {name} AS SELECT …",
            )
        view = plain_name(name)
        imported = _ImportedView(view, doc, {}, [select], tuple(select.selected) if name in self.fed else ())
        if select.indexes:
            imported.more["indexes"] = select.indexes
        if options.get("partitions", "").isdigit():
            imported.more["partitions"] = int(options["partitions"])
        _note_unused_options(view, options, translation)
        self._put(imported, translation)
        self.views[name] = imported
        self.catalog.relations[name] = select.relation(view)

    def _put(self, imported: _ImportedView, translation: StatementTranslation) -> None:
        """Write the view's file, and check it. Raises NotTranslated."""
        sql = "\nUNION ALL\n".join(each.sql(imported.columns) for each in imported.selects)
        sources = {name: source for each in imported.selects for name, source in each.sources.items()}
        more = {"doc": imported.doc, **imported.more}
        put_view(
            self.files, self.copy, imported.name, sql, sources, imported.selects[0].key, more, translation
        )

    def _insert(self, reader: StatementReader, translation: StatementTranslation) -> None:
        name = reader.name()
        if reader.peek() in ("(", "VALUES"):
            raise NotTranslated(
                "INSERT INTO … VALUES writes an event, and declares nothing",
                "hub topic publish TOPIC, or POST /topics/TOPIC: docs/how-to/write-events-over-http.md",
            )
        if reader.take("WITH"):
            reader.options()
        self.catalog.relation(name)
        imported = self.views.get(name)
        if imported is None:
            raise NotTranslated(f"{name} is a table", "INSERT INTO takes a stream")
        start = reader.tokens[reader.at].start if not reader.ended else len(reader.text)
        text = reader.text[start:]
        select = ViewWriter(query_of(text, tokenize(text)), self.catalog, translation).written(
            with_topic=True
        )
        if select.kind != "stream" or any(
            each not in (*imported.columns, "item_number") for each in select.selected
        ):
            other = next((each for each in select.selected if each not in imported.columns), "a table")
            raise NotTranslated(
                f"{name} has no column {other}",
                "give the columns of the SELECT the names of the stream's: … AS name",
            )
        changed = replace(imported, selects=[*imported.selects, select])
        self._put(changed, translation)
        self.views[name] = changed

    # ---- others

    def _type(self, reader: StatementReader, translation: StatementTranslation) -> None:
        reader.take("IF NOT EXISTS")
        name = reader.next().text.upper()
        reader.need("AS")
        self.catalog.types[name] = read_type(reader, self.catalog.types)
        translation.note("columns of this type have its fields")

    def _connector(self, reader: StatementReader, translation: StatementTranslation) -> None:
        reader.take("IF NOT EXISTS")
        name = reader.name()
        reader.need("WITH")
        if not self.files.add_connector(name, connector(name, reader.options(), translation)):
            translation.note(f"connectors.yaml has {name} already: it stays as it is")
            return
        self.copy.check_files(self.files)
        translation.made.append(f"connectors.yaml: {name}")

    def _drop(self, reader: StatementReader, translation: StatementTranslation) -> None:
        kind = reader.next().upper
        reader.take("IF EXISTS")
        name = reader.name()
        if kind == "TYPE" and self.catalog.types.pop(name.upper(), None) is not None:
            return
        if kind not in ("STREAM", "TABLE") or name not in self.catalog.relations:
            raise NotTranslated(
                f"DROP {kind} {name}: no statement before this one makes it",
                "remove its file or its entry by hand",
            )
        imported = self.views.get(name)
        if imported is None:
            translation.differ(
                "its topic and schema stay in the files; only later statements no longer see it"
            )
        else:
            readers = [
                each.name
                for each in self.views.values()
                if each is not imported and _reads_view(each, imported.name)
            ]
            if readers:
                raise NotTranslated(f"{name} is read by {', '.join(readers)}", "drop these first")
            self.files.made.pop(f"views/{imported.name}.yaml", None)
            del self.views[name]
            translation.note(f"views/{imported.name}.yaml is not made")
        del self.catalog.relations[name]

    def _alter(self, reader: StatementReader, translation: StatementTranslation) -> None:
        name = reader.name()
        relation = self.catalog.relation(name)
        if relation.view is not None:
            raise NotTranslated(f"{name} has the columns of its SELECT", "change the SELECT")
        added: dict[str, ImportedColumn] = {}
        while reader.take("ADD"):
            reader.take("COLUMN")
            token = reader.next()
            added[column_name(token)] = ImportedColumn(
                quoted(token.text), read_type(reader, self.catalog.types)
            )
            reader.take(",")
        source = dict(relation.source)
        if "schema" in source:
            new = {of.expression.strip("`"): of.type.ddl for of in added.values() if of.type is not None}
            source["schema"] = {**source["schema"], **new}
        else:
            translation.differ("add the columns to the schema's file, too")
        self.catalog.relations[name] = replace(relation, source=source, columns={**relation.columns, **added})

    def _define(self, reader: StatementReader, translation: StatementTranslation) -> None:
        name = reader.name()
        reader.need("=")
        self.variables[name] = reader.next().text
        translation.note("its value stands in the statements")

    def _undefine(self, reader: StatementReader, translation: StatementTranslation) -> None:
        self.variables.pop(reader.name(), None)
        translation.note("statements behind it no longer have its value")

    def _set(self, reader: StatementReader, translation: StatementTranslation) -> None:
        name = reader.next().text
        value = reader.next().text if reader.take("=") else ""
        if name not in _SETTINGS:
            raise NotTranslated(
                f"the setting {name} has no meaning in the hub", "settings: docs/reference/settings.md"
            )
        translation.note(_SETTINGS[name])
        if value == "latest":
            translation.differ("latest: a view also has the events of before; restrict them in WHERE")
        if value == "at_least_once":
            translation.differ("at_least_once: the hub counts each event once")


def _fed_stream(statement: Statement) -> str | None:
    """Return the stream that an INSERT INTO … SELECT feeds, as a name in the catalog."""
    tokens = statement.tokens
    if len(tokens) < 4 or [each.upper for each in tokens[:2]] != ["INSERT", "INTO"]:
        return None
    if tokens[3].upper == "VALUES" or tokens[3].text == "(":
        return None
    return tokens[2].text.lower() if tokens[2].kind == "word" else tokens[2].text


def _is_query(reader: StatementReader) -> bool:
    """Return whether ``WITH (…)`` is followed by AS."""
    here = reader.at
    reader.take("WITH")
    reader.options()
    found = reader.peek() == "AS"
    reader.at = here
    return found


def _note_unused_options(view: str, options: Mapping[str, str], translation: StatementTranslation) -> None:
    if "kafka_topic" in options:
        translation.differ(f'the rows are in the topic "views.{view}", not in "{options["kafka_topic"]}"')
    form = options.get("value_format") or options.get("format")
    if form and form.upper() != "AVRO":
        translation.differ(f"rows in the topic are Avro, not {form.upper()}")
    if "replicas" in options:
        translation.note("replicas: replication_factor in hub.yaml")


def _reads_view(imported: _ImportedView, view: str) -> bool:
    return any(source.get("view") == view for each in imported.selects for source in each.sources.values())

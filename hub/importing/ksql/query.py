"""[core] The clauses of a query of ksqlDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hub.importing.report import NotTranslated
from hub.importing.statements import StatementReader, Token, split_tokens

_CLAUSES = (
    "FROM",
    "WINDOW",
    "WHERE",
    "GROUP BY",
    "PARTITION BY",
    "HAVING",
    "EMIT",
    "LIMIT",
    "ORDER BY",
    "SELECT",
)
_JOINS = ("INNER JOIN", "JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "RIGHT OUTER JOIN", "FULL JOIN",
          "FULL OUTER JOIN", "OUTER JOIN", "CROSS JOIN")  # fmt: skip
_UNITS = {
    "MILLISECOND": "milliseconds",
    "SECOND": "seconds",
    "MINUTE": "minutes",
    "HOUR": "hours",
    "DAY": "days",
}
# Words that end an expression without being an alias.
_NO_ALIAS = {"END", "NULL", "TRUE", "FALSE"}
_NOT_BEFORE_ALIAS = {"NOT", "AND", "OR", "IS", "IN", "LIKE", "BETWEEN", "FROM", "DISTINCT"}
WindowKind = Literal["tumbling", "hopping", "session"]


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An item of the SELECT list. ``star``: the relation whose columns are all selected, "" for every one;
    None otherwise."""

    tokens: tuple[Token, ...]
    alias: str | None = None
    star: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A relation of FROM. ``how`` "": the first. ``within``: before and after, as durations."""

    name: str
    alias: str
    how: str = ""
    within: tuple[str, str] | None = None
    grace: str | None = None
    on: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A window. Durations such as ``10 minutes``; ``size`` of a session is its gap."""

    kind: WindowKind
    size: str
    advance: str | None = None
    grace: str | None = None
    retention: str | None = None


@dataclass
class KsqlQuery:
    """A query. ``emit``: changes, final or "" for none (a pull query)."""

    items: list[SelectItem] = field(default_factory=list)
    relations: list[Joined] = field(default_factory=list)
    window: WindowClause | None = None
    where: tuple[Token, ...] = ()
    group: list[list[Token]] = field(default_factory=list)
    partition: list[list[Token]] = field(default_factory=list)
    having: tuple[Token, ...] = ()
    emit: str = ""
    limit: bool = False


def query_of(text: str, tokens: Sequence[Token]) -> KsqlQuery:
    """Read a query. Raises NotTranslated."""
    reader = StatementReader(text, tokens)
    query = KsqlQuery()
    reader.need("SELECT")
    if reader.take("DISTINCT"):
        raise NotTranslated("ksqlDB has no SELECT DISTINCT", "GROUP BY the columns")
    query.items = [_item(part) for part in split_tokens(reader.until("FROM"))]
    reader.need("FROM")
    query.relations = [_relation(reader)]
    while reader.peek() in ("INNER", "JOIN", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS"):
        query.relations.append(_join(reader))
    _clauses(reader, query)
    if not reader.ended:
        raise NotTranslated(f'"{reader.shown()}" is not expected here', "check the order of the clauses")
    return query


def _clauses(reader: StatementReader, query: KsqlQuery) -> None:
    while not reader.ended:
        if reader.take("WINDOW"):
            query.window = _window(reader)
        elif reader.take("WHERE"):
            query.where = tuple(reader.until(*_CLAUSES))
        elif reader.take("GROUP BY"):
            query.group = _several(reader.until(*_CLAUSES))
        elif reader.take("PARTITION BY"):
            query.partition = _several(reader.until(*_CLAUSES))
        elif reader.take("HAVING"):
            query.having = tuple(reader.until(*_CLAUSES))
        elif reader.take("EMIT"):
            query.emit = reader.next().text.lower()
        elif reader.take("LIMIT"):
            reader.next()
            query.limit = True
        else:
            return


def _several(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the expressions of GROUP BY, which may stand in brackets together."""
    if (
        len(tokens) > 2
        and tokens[0].text == "("
        and tokens[-1].text == ")"
        and len(split_tokens(tokens)) == 1
    ):
        return split_tokens(tokens[1:-1])
    return split_tokens(tokens)


def _item(tokens: Sequence[Token]) -> SelectItem:
    if tokens and tokens[-1].text == "*" and (len(tokens) == 1 or tokens[-2].text == "."):
        return SelectItem(tuple(tokens), star=tokens[0].text.lower() if len(tokens) > 1 else "")
    if len(tokens) > 2 and tokens[-2].upper == "AS":
        return SelectItem(tuple(tokens[:-2]), _name(tokens[-1]))
    if len(tokens) > 1 and tokens[-1].kind in ("word", "quoted") and tokens[-1].upper not in _NO_ALIAS:
        before = tokens[-2]
        ends = before.kind in ("string", "number", "quoted") or before.text in (")", "]")
        if ends or (before.kind == "word" and before.upper not in _NOT_BEFORE_ALIAS):
            return SelectItem(tuple(tokens[:-1]), _name(tokens[-1]))
    return SelectItem(tuple(tokens))


def _name(token: Token) -> str:
    return token.text.lower()


def _relation(reader: StatementReader) -> Joined:
    if reader.peek() == "(":
        raise NotTranslated("a query in FROM", "make it a stream or table of its own: CREATE … AS SELECT")
    name = reader.name()
    alias = name
    if reader.take("AS") or (
        not reader.ended
        and reader.peek()
        not in (
            *(keyword for clause in (*_CLAUSES, *_JOINS) for keyword in clause.split()[:1]),
            "WITHIN",
            "ON",
        )
    ):
        alias = reader.name()
    return Joined(name, alias)


def _join(reader: StatementReader) -> Joined:
    how = next((each for each in sorted(_JOINS, key=len, reverse=True) if reader.take(each)), None)
    if how is None or how == "CROSS JOIN":
        raise NotTranslated(f'"{reader.shown()}" is not a join', "JOIN … ON a.id = b.id")
    right = _relation(reader)
    within = grace = None
    if reader.take("WITHIN"):
        within = _within(reader)
        if reader.take("GRACE PERIOD"):
            grace = duration(reader)
    reader.need("ON")
    on = tuple(reader.until(*_CLAUSES, *_JOINS))
    short = how.replace("OUTER JOIN", "JOIN") if how != "OUTER JOIN" else "FULL JOIN"
    return Joined(right.name, right.alias, "JOIN" if short == "INNER JOIN" else short, within, grace, on)


def _within(reader: StatementReader) -> tuple[str, str]:
    if not reader.take("("):
        both = duration(reader)
        return both, both
    before = duration(reader)
    reader.need(",")
    after = duration(reader)
    reader.need(")")
    return before, after


def duration(reader: StatementReader) -> str:
    """Read ``10 MINUTES``. Raises NotTranslated."""
    number, unit = reader.next(), reader.next()
    name = _UNITS.get(unit.upper.removesuffix("S"))
    if number.kind != "number" or name is None:
        raise NotTranslated(
            f'"{number.text} {unit.text}" is not a duration of the hub',
            "write it in days, hours, minutes or seconds",
        )
    return f"{number.text} {name}"


def _window(reader: StatementReader) -> WindowClause:
    kind = reader.next().upper
    reader.need("(")
    durations: dict[str, str] = {}
    if kind == "SESSION":
        durations["size"] = duration(reader)
    elif kind not in ("TUMBLING", "HOPPING"):
        raise NotTranslated(f"a window {kind} does not exist", "TUMBLING, HOPPING or SESSION")
    while not reader.take(")"):
        for phrase, name in (("SIZE", "size"), ("ADVANCE BY", "advance"), ("GRACE PERIOD", "grace"),
                             ("RETENTION", "retention")):  # fmt: skip
            if reader.take(phrase):
                durations[name] = duration(reader)
                break
        else:
            reader.need(",")
    if "size" not in durations or (kind == "HOPPING" and "advance" not in durations):
        raise NotTranslated("the window has no length", f"WINDOW {kind} (SIZE 1 HOUR …)")
    kinds: dict[str, WindowKind] = {"TUMBLING": "tumbling", "HOPPING": "hopping", "SESSION": "session"}
    return WindowClause(kinds[kind], **durations)

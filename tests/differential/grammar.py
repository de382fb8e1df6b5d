"""Random SELECT statements of the hub's dialect, whose answers do not depend on the order of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from differential.tables import TABLES

KINDS = ("text", "int", "float", "bool", "time", "date")


@dataclass(slots=True)
class Scope:
    """Columns that an expression may use, as SQL with their kinds."""

    columns: list[tuple[str, str]] = field(default_factory=list)

    def of(self, kind: str) -> list[str]:
        return [sql for sql, each in self.columns if each == kind]


class Grammar:
    """Statements by seed; each method returns SQL. ``depth`` bounds the nesting of expressions."""

    def __init__(self, seed: str) -> None:
        self.chance = Random(seed)
        self._aliases = 0

    # ---- statements

    def statement(self) -> str:
        pick = self.chance.random()
        if pick < 0.12:
            return self._set_operation()
        if pick < 0.2:
            inner = self._select([self._kind() for _ in range(3)], named=True)
            outer = "a, b, c" if self.chance.random() < 0.5 else "a, count(*), max(b)"
            group = " GROUP BY a" if "count" in outer else ""
            return f"WITH w AS ({inner[0]}) SELECT {outer} FROM w{group}"
        return self._select([self._kind() for _ in range(self.chance.randint(1, 4))])[0]

    def _set_operation(self) -> str:
        kinds = [self._kind() for _ in range(self.chance.randint(1, 2))]
        sql = self._plain(kinds)
        for _ in range(self.chance.choice((1, 1, 2))):
            operator = self.chance.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
            # A column of whole numbers and one of others make one of others.
            mixed = ["float" if kind == "int" and self.chance.random() < 0.2 else kind for kind in kinds]
            sql = f"({sql}) {operator} ({self._plain(mixed)})"
        return sql + self._ordered(len(kinds), named=False)

    def _plain(self, kinds: Sequence[str]) -> str:
        table, scope = self._from()
        return (
            f"SELECT {', '.join(self._value(scope, kind, 2) for kind in kinds)} FROM "
            f"{table}{self._where(scope)}"
        )

    def _select(self, kinds: Sequence[str], *, named: bool = False) -> tuple[str, Sequence[str]]:
        table, scope = self._from()
        shape = self.chance.random()
        if shape < 0.35:
            return self._grouped(table, scope, kinds, named), kinds
        items = [self._value(scope, kind, 3) for kind in kinds]
        if shape < 0.5 and not named:
            items.append(self._window(scope))
        distinct = "DISTINCT " if self.chance.random() < 0.15 else ""
        sql = f"SELECT {distinct}{self._named(items, named)} FROM {table}{self._where(scope)}"
        return sql + self._ordered(len(items), named), kinds

    def _grouped(self, table: str, scope: Scope, kinds: Sequence[str], named: bool) -> str:
        groups = [self._value(scope, self._kind(), 2, columns=True) for _ in range(self.chance.randint(0, 2))]
        items: list[str] = []
        for kind in kinds:
            item = self._aggregate(scope, kind)
            items.append(f"CASE WHEN count(*) > 1 THEN {item} END" if self.chance.random() < 0.2 else item)
        listed = [*groups, *items] if not named else [*groups, *items][: len(kinds)]
        sql = f"SELECT {self._named(listed, named)} FROM {table}{self._where(scope)}"
        if groups:
            sql += f" GROUP BY {', '.join(groups)}"
        if groups and self.chance.random() < 0.3:
            sql += f" HAVING {self._aggregate(scope, 'int')} > {self.chance.randint(-2, 3)}"
        return sql + self._ordered(len(listed), named)

    def _named(self, items: Sequence[str], named: bool) -> str:
        return ", ".join(f"{each} AS {'abcdefgh'[n]}" if named else each for n, each in enumerate(items))

    def _ordered(self, count: int, named: bool) -> str:
        """An order by every column, sometimes with a limit: then it says which rows there are."""
        if named or self.chance.random() < 0.6:
            return ""
        keys = [
            f"{n + 1}{self.chance.choice(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
            for n in range(count)
        ]
        limit = f" LIMIT {self.chance.randint(0, 5)}" if self.chance.random() < 0.5 else ""
        offset = f" OFFSET {self.chance.randint(0, 3)}" if limit and self.chance.random() < 0.3 else ""
        return f" ORDER BY {', '.join(keys)}{limit}{offset}"

    def _from(self) -> tuple[str, Scope]:
        pick = self.chance.random()
        if pick < 0.1:
            return self._derived()
        first, second = self.chance.choice((("plant", "visit"), ("visit", "plant"), ("plant", "plant")))
        if pick < 0.6:
            return f"{first} t", self._scope(("t", first))
        join = self.chance.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        scope = self._scope(("t", first), ("u", second))
        on = self.chance.choice(("t.n = u.n", "t.key = u.key", self._on(first, second)))
        if join == "FULL JOIN":  # Postgres: only with conditions that it can merge or hash
            on = "t.n = u.n"
        return f"{first} t {join} {second} u ON {on}", scope

    def _derived(self) -> tuple[str, Scope]:
        """A table beside a subquery or one that shares a column's name, or every pair of rows."""
        shape = self.chance.random()
        scope = self._scope(("t", "plant"), ("u", "visit"))
        if shape < 0.3:
            return "plant t JOIN visit u USING (n)", scope
        if shape < 0.5:
            return "plant t CROSS JOIN visit u", scope
        groups = "SELECT v.plant AS k, count(*) AS c, max(v.score) AS best FROM visit v GROUP BY v.plant"
        scope = self._scope(("t", "plant"))
        scope.columns += [("g.c", "int"), ("g.best", "float"), ("g.k", "text")]
        return f"plant t LEFT JOIN ({groups}) g ON g.k = t.key", scope

    def _on(self, first: str, second: str) -> str:
        left, right = ("t", "u") if second == "visit" else ("u", "t")
        if {first, second} == {"plant", "visit"}:
            return f"{left}.key = {right}.plant AND {left}.n >= {right}.n"
        return "t.city = u.note"

    def _scope(self, *tables: tuple[str, str]) -> Scope:
        return Scope(
            [(f"{alias}.{name}", kind) for alias, table in tables for name, kind in TABLES[table].items()]
            + [(f"{alias}.key", "text") for alias, _ in tables]
        )

    def _where(self, scope: Scope) -> str:
        pick = self.chance.random()
        if pick < 0.35:
            return ""
        if pick < 0.45:
            some = self.chance.choice(("EXISTS", "NOT EXISTS"))
            return f" WHERE {some} (SELECT 1 FROM visit s WHERE s.n = {self._column(scope, 'int')})"
        if pick < 0.55:
            inside = self.chance.choice(("IN", "NOT IN"))
            return f" WHERE {self._column(scope, 'int')} {inside} (SELECT s.n FROM plant s WHERE s.big)"
        return f" WHERE {self._value(scope, 'bool', 3)}"

    # ---- expressions

    def _kind(self) -> str:
        return self.chance.choices(KINDS, (5, 5, 4, 3, 2, 1))[0]

    def _column(self, scope: Scope, kind: str) -> str:
        found = scope.of(kind)
        return self.chance.choice(found) if found else self._literal(kind)

    def _literal(self, kind: str) -> str:
        pick = self.chance.choice
        if kind == "text":
            return pick(("'Oslo'", "'a%b'", "''", "'p1'", "'ö'", "'it''s'", "'12'"))
        if kind == "int":
            return pick(("0", "1", "2", "3", "-1", "10"))
        if kind == "float":
            return pick(
                (
                    "CAST(0.5 AS double precision)",
                    "CAST(-2.5 AS double precision)",
                    "CAST(3 AS double precision)",
                )
            )
        if kind == "bool":
            return pick(("TRUE", "FALSE"))
        if kind == "time":
            return pick(("TIMESTAMP '2026-01-01T00:00:00Z'", "TIMESTAMP '2026-01-02T12:30:00Z'"))
        return pick(("DATE '2026-01-01'", "DATE '2025-12-31'"))

    def _value(self, scope: Scope, kind: str, depth: int, *, columns: bool = False) -> str:
        """An expression of a kind. ``columns``: it uses at least one column."""
        if columns:
            return self._column(scope, kind) if scope.of(kind) else self._column(scope, "int")
        if depth <= 0 or self.chance.random() < 0.3:
            return self._column(scope, kind) if self.chance.random() < 0.75 else self._literal(kind)
        if self.chance.random() < 0.2:
            return self._of_any(scope, kind, depth - 1)
        return str(getattr(self, f"_{kind}")(scope, depth - 1))

    def _of_any(self, scope: Scope, kind: str, depth: int) -> str:
        a, b = self._value(scope, kind, depth), self._value(scope, kind, depth)
        condition = self._value(scope, "bool", depth)
        other = self._value(scope, "int", depth)
        return self.chance.choice(
            (
                f"coalesce({a}, {b})",
                f"nullif({a}, {b})",
                f"CASE WHEN {condition} THEN {a} ELSE {b} END",
                f"CASE WHEN {condition} THEN {a} END",
                f"CASE {other} WHEN 1 THEN {a} WHEN 2 THEN {b} END",
                *(() if kind == "bool" else (f"greatest({a}, {b})", f"least({a}, {b})")),
            )
        )

    def _text(self, scope: Scope, depth: int) -> str:
        a, b = self._value(scope, "text", depth), self._value(scope, "text", depth)
        number = self._value(scope, "int", depth)
        n = self.chance.choice(("0", "1", "2", "3", "-1", f"({number} % 5)"))
        return self.chance.choice(
            (
                f"lower({a})",
                f"upper({a})",
                f"trim({a})",
                f"ltrim({a})",
                f"rtrim({a})",
                f"({a} || {b})",
                f"left({a}, {n})",
                f"right({a}, {n})",
                f"substring({a} FROM 2)",
                (f"substring({a} FROM {n} FOR 2)"),
                f"replace({a}, {self._literal('text')}, {b})",
                f"concat({a}, {b}, {number} + 0)",
                f"concat_ws('-', {a}, {b})",
                f"CAST({self._value(scope, 'float', depth)} + 0 AS text)",
                f"concat({a}, {self._value(scope, 'float', depth)} + 0)",
                f"CAST({number} AS text)",
                f"CAST({self._value(scope, 'bool', depth)} AS text)",
                f"CAST({self._value(scope, 'date', depth)} AS text)",
                f"trim(both 'O' FROM {a})",
            )
        )

    def _int(self, scope: Scope, depth: int) -> str:
        a, b = self._value(scope, "int", depth), self._value(scope, "int", depth)
        text = self._value(scope, "text", depth)
        part = self.chance.choice(("year", "month", "day", "hour", "minute", "dow", "doy", "week", "isodow"))
        return self.chance.choice(
            (
                f"({a} + {b})",
                f"({a} - {b})",
                (f"({self._column(scope, 'int')} * {self.chance.randint(-3, 3)})"),
                f"({a} / {self.chance.choice(('2', '3', '-2'))})",
                f"({a} % {self.chance.choice(('2', '3', '-4'))})",
                f"abs({a})",
                f"(- {a})",
                f"length({text})",
                f"char_length({text})",
                f"position({self._literal('text')} IN {text})",
                f"strpos({text}, {self._literal('text')})",
                f"mod({a}, 3)",
                f"CAST({self._value(scope, 'float', depth)} AS bigint)",
                f"CAST({self._value(scope, 'bool', depth)} AS int)",
                f"(SELECT count(*) FROM visit s WHERE s.n = {self._column(scope, 'int')})",
                f"(SELECT max(s.ms) FROM visit s WHERE s.ok AND s.n < {a})",
                f"({self._value(scope, 'date', depth)} - {self._value(scope, 'date', depth)})",
                f"CAST(extract({part} FROM {self._value(scope, 'time', depth)}) AS bigint)",
            )
        )

    def _float(self, scope: Scope, depth: int) -> str:
        a, b = self._value(scope, "float", depth), self._value(scope, "float", depth)
        return self.chance.choice(
            (
                f"({a} + {b})",
                f"({a} - {b})",
                (f"({self._column(scope, 'float')} * {self._literal('float')})"),
                f"({a} / {self.chance.choice(('2', '4', '-8'))})",
                f"abs({a})",
                f"floor({a})",
                f"ceil({a})",
                f"round({a})",
                f"CAST(round(CAST({a} AS numeric), 1) AS double precision)",
                f"CAST({self._value(scope, 'int', depth)} AS double precision)",
                f"({a} + {self._value(scope, 'int', depth)})",
                f"coalesce({self._value(scope, 'int', depth)}, {a})",
                (
                    f"CASE WHEN {self._value(scope, 'bool', depth)} THEN {a} ELSE "
                    f"{self._value(scope, 'int', depth)} END"
                ),
                f"greatest({a}, {self._value(scope, 'int', depth)})",
            )
        )

    def _bool(self, scope: Scope, depth: int) -> str:
        kind = self._kind()
        a, b = self._value(scope, kind, depth), self._value(scope, kind, depth)
        p, q = self._value(scope, "bool", depth), self._value(scope, "bool", depth)
        text = self._value(scope, "text", depth)
        pattern = self.chance.choice(("'%'", "'o%'", "'_s%'", "'%a\\%b%'", "''", "'%ö%'", "'O__o'"))
        like = self.chance.choice(("LIKE", "ILIKE", "NOT LIKE"))
        compare = self.chance.choice(("=", "<>", "<", ">", "<=", ">="))
        return self.chance.choice(
            (
                f"({a} {compare} {b})",
                f"({a} {compare} {b})",
                f"({p} AND {q})",
                f"({p} OR {q})",
                f"(NOT {p})",
                f"({a} IS NULL)",
                f"({a} IS NOT NULL)",
                f"({a} IS DISTINCT FROM {b})",
                f"({a} IS NOT DISTINCT FROM {b})",
                f"({a} BETWEEN {b} AND {self._value(scope, kind, depth)})",
                f"({a} IN ({b}, {self._literal(kind)}))",
                f"({a} NOT IN ({b}, {self._literal(kind)}))",
                f"({text} {like} {pattern})",
                f"starts_with({text}, {self._literal('text')})",
                f"({p} IS TRUE)",
                f"({p} IS NOT FALSE)",
            )
        )

    def _time(self, scope: Scope, depth: int) -> str:
        a = self._value(scope, "time", depth)
        unit = self.chance.choice(("day", "hour", "month", "week", "year", "minute", "quarter"))
        sign = self.chance.choice("+-")
        gap = self.chance.choice(("1 hour", "90 minutes", "2 days", "1 week"))
        return self.chance.choice((f"date_trunc('{unit}', {a})", f"({a} {sign} INTERVAL '{gap}')"))

    def _date(self, scope: Scope, depth: int) -> str:
        return f"CAST({self._value(scope, 'time', depth)} AS date)"

    def _aggregate(self, scope: Scope, kind: str) -> str:
        x = self._value(scope, kind, 2)
        any_kind = self._value(scope, self._kind(), 2)
        condition = self._value(scope, "bool", 2)
        filtered = f" FILTER (WHERE {condition})" if self.chance.random() < 0.25 else ""
        if kind == "int":
            return (
                self.chance.choice(
                    (
                        "count(*)",
                        f"count({any_kind})",
                        f"count(DISTINCT {any_kind})",
                        f"max({x})",
                        f"min({x})",
                        f"sum({x})",
                    )
                )
                + filtered
            )
        if kind == "float":
            number = self._value(scope, self.chance.choice(("int", "float")), 1)
            return self.chance.choice(
                (
                    f"CAST(avg({number}){filtered} AS double precision)",
                    f"sum({x}){filtered}",
                    f"min({x}){filtered}",
                )
            )
        if kind == "bool":
            return self.chance.choice((f"bool_and({x})", f"bool_or({x})")) + filtered
        return self.chance.choice((f"max({x})", f"min({x})")) + filtered

    def _window(self, scope: Scope) -> str:
        keys = ", ".join(sql for sql, _ in scope.columns if sql.endswith(".key"))
        by = f"PARTITION BY {self._column(scope, 'text')} " if self.chance.random() < 0.6 else ""
        order = f"ORDER BY {self._column(scope, 'int')}, {keys}"
        rows = self.chance.choice(("", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"))
        x = self._column(scope, "int")
        return self.chance.choice(
            (
                f"row_number() OVER ({by}{order})",
                f"rank() OVER ({by}ORDER BY {x})",
                f"dense_rank() OVER ({by}ORDER BY {x} DESC)",
                f"lag({x}) OVER ({by}{order})",
                f"lead({x}, 2) OVER ({by}{order})",
                f"sum({x}) OVER ({by}{order}{rows})",
                f"sum({x}) OVER ({by}ORDER BY {self._column(scope, 'text')})",
                f"max({x}) OVER ({by}ORDER BY {x} DESC)",
                f"avg({x}) OVER ({by.strip()})",
                f"count(*) OVER ({by.strip()})",
                f"first_value({x}) OVER ({by}{order})",
            )
        )

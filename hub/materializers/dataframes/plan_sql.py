"""[core] Write the plan of a data frame as one SELECT in Spark SQL.

Consecutive steps become one SELECT while SQL has a place for each: filters in WHERE, an aggregation in GROUP
BY with a later filter in HAVING, and projections in the SELECT list, whose expressions are written out. A
step that has no place any more reads the steps before it as a subquery. Columns that nothing reads are left
out.

The text is deterministic: it depends on the plan's form and names, never on Spark's numbers, because it is
part of the fingerprint of the view.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.materializers.dataframes.plan_values import (
    REFERENCE,
    DistinctStep,
    ExplodeStep,
    GroupStep,
    JoinStep,
    OverStep,
    Plan,
    PlanColumn,
    PlanItem,
    SelectStep,
    Source,
    SqlTerm,
    TopStep,
    UnionStep,
    WhereStep,
    new_columns,
)

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A column of FROM, as opposed to any expression.
_PATH = re.compile(r"([A-Za-z_]\w*|`(?:[^`]|``)+`)\.(\w+|`(?:[^`]|``)+`)")
# Longest expression that a later step repeats; the expressions of longer ones are made in a subquery.
_LONGEST_REPEATED = 2_000


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of SQL, and the line of Python that it was made of; 0: unknown."""

    text: str
    source: int = 0


@dataclass(frozen=True, slots=True)
class _Block:
    """One SELECT under construction. ``columns``: terms of the columns, by number, in terms of FROM."""

    tables: tuple[PlanLine, ...]
    columns: Mapping[int, SqlTerm]
    laterals: tuple[PlanLine, ...] = ()
    where: tuple[SqlTerm, ...] = ()
    groups: tuple[SqlTerm, ...] | None = None
    having: tuple[SqlTerm, ...] = ()
    order: tuple[SqlTerm, ...] = ()
    limit: SqlTerm | None = None
    distinct: bool = False
    line: int = 0

    @property
    def is_closed(self) -> bool:
        """True if no clause can be added, because it would apply before the ones that are there."""
        return self.distinct or self.limit is not None

    @property
    def has_rows_of_tables(self) -> bool:
        """True if its rows are those of FROM, filtered."""
        return self.groups is None and not self.is_closed and not self.ranks

    @property
    def ranks(self) -> bool:
        return any(term.ranks for term in self.columns.values())

    @property
    def is_tables(self) -> bool:
        """True if it is nothing but its FROM."""
        return (
            self.has_rows_of_tables
            and not self.where
            and not self.laterals
            and all(_PATH.fullmatch(term.text) for term in self.columns.values())
        )


def sql_of(plan: Plan, outputs: Sequence[PlanColumn]) -> list[PlanLine]:
    """Return the SELECT of a plan, one line per expression. ``outputs``: its columns, in order."""
    writer = _Writer()
    needed = {column.number for column in outputs}
    return writer.rendered(writer.block(plan, needed), [(each.number, each.name) for each in outputs])


@dataclass
class _Writer:
    """Writes one plan. ``aliases``: names of FROM that are taken. ``names``: those of the columns."""

    aliases: set[str] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    source_columns: set[str] = field(default_factory=set)

    def block(self, plan: Plan, needed: set[int]) -> _Block:
        """Return the SELECT of a plan with the columns ``needed``."""
        self.names |= {each.number: each.name for each in new_columns(plan)}
        match plan:
            case Source():
                return self._source(plan, needed)
            case SelectStep():
                return self._select(plan, needed)
            case WhereStep():
                return self._where(plan, needed)
            case GroupStep():
                return self._group(plan, needed)
            case DistinctStep():
                return self._distinct(plan)
            case JoinStep():
                return self._join(plan, needed)
            case UnionStep():
                return self._union(plan, needed)
            case ExplodeStep():
                return self._explode(plan, needed)
            case OverStep():
                return self._over(plan, needed)
            case TopStep():
                return self._top(plan, needed)

    def _source(self, plan: Source, needed: set[int]) -> _Block:
        self.source_columns |= {each.name.lower() for each in plan.columns}
        alias = self._alias(plan.name)
        table = _quoted(plan.name) if alias == plan.name else f"{_quoted(plan.name)} AS {_quoted(alias)}"
        columns = {
            each.number: SqlTerm(f"{_quoted(alias)}.{_quoted(each.name)}")
            for each in plan.columns
            if each.number in needed
        }
        return _Block((PlanLine(table),), columns)

    def _select(self, plan: SelectStep, needed: set[int]) -> _Block:
        items = [item for item in plan.items if item.column.number in needed]
        child = self.block(plan.child, _read_by(item.term for item in items))
        if child.is_closed or _is_long(child, items):
            child = self._nested(child)
        return replace(child, columns=_made(items, child))

    def _where(self, plan: WhereStep, needed: set[int]) -> _Block:
        child = self.block(plan.child, needed | plan.condition.columns)
        if child.is_closed or child.ranks:
            child = self._nested(child)
        condition = _within(plan.condition, child.columns)
        sql_terms = {number: term for number, term in child.columns.items() if number in needed}
        if child.groups is None:
            return replace(child, where=(*child.where, condition), columns=sql_terms)
        return replace(child, having=(*child.having, condition), columns=sql_terms)

    def _group(self, plan: GroupStep, needed: set[int]) -> _Block:
        items = [item for item in plan.items if item.column.number in needed]
        child = self.block(plan.child, _read_by((*plan.keys, *(item.term for item in items))))
        if not child.has_rows_of_tables:
            child = self._nested(child)
        keys = tuple(_within(key, child.columns) for key in plan.keys)
        return replace(child, groups=keys, columns=_made(items, child), line=plan.line)

    def _distinct(self, plan: DistinctStep) -> _Block:
        child = self.block(plan.child, {each.number for each in plan.columns})
        if child.is_closed or child.ranks:
            child = self._nested(child)
        columns = {each.number: child.columns[each.number] for each in plan.columns}
        return replace(child, columns=columns, distinct=True)

    def _join(self, plan: JoinStep, needed: set[int]) -> _Block:
        read = needed | (plan.condition.columns if plan.condition is not None else set())
        left = self.block(plan.left, read)
        if not left.is_tables:
            left = self._nested(left)
        right = self.block(plan.right, read)
        if not right.is_tables or len(right.tables) > 1:
            right = self._nested(right)
        columns = {**left.columns, **right.columns}
        first, *rest = right.tables
        tables = [*left.tables, PlanLine(f"{plan.kind} JOIN {first.text}", first.source or plan.line), *rest]
        if plan.condition is not None:
            condition = _within(plan.condition, columns)
            tables.append(PlanLine(f"  ON {condition.text}", condition.line or plan.line))
        sql_terms = {number: term for number, term in columns.items() if number in needed}
        return _Block(tuple(tables), sql_terms, line=plan.line)

    def _union(self, plan: UnionStep, needed: set[int]) -> _Block:
        positions = [n for n, each in enumerate(plan.columns) if each.number in needed] or [0]
        columns = [plan.columns[n] for n in positions]
        names = _names(columns)
        lines: list[PlanLine] = []
        for child, inputs in zip(plan.children, plan.inputs, strict=True):
            wanted = [inputs[n] for n in positions]
            block = self.block(child, set(wanted))
            if block.limit is not None:
                block = self._nested(block)
            if lines:
                lines.append(PlanLine("UNION ALL"))
            lines += self.rendered(block, list(zip(wanted, names, strict=True)))
        return self._from(lines, dict(zip((each.number for each in columns), names, strict=True)))

    def _explode(self, plan: ExplodeStep, needed: set[int]) -> _Block:
        child = self.block(plan.child, (needed | plan.generator.columns) - {e.number for e in plan.made})
        if not child.has_rows_of_tables:
            child = self._nested(child)
        alias = self._alias("item")
        names = [self._unused(each.name) for each in plan.made]
        outer = "OUTER " if plan.outer else ""
        call = _within(plan.generator, child.columns)
        made = ", ".join(map(_quoted, names))
        lateral = PlanLine(f"LATERAL VIEW {outer}{call.text} {alias} AS {made}", call.line)
        columns = {number: term for number, term in child.columns.items() if number in needed}
        columns |= {each.number: SqlTerm(_quoted(name)) for each, name in zip(plan.made, names, strict=True)}
        return replace(child, laterals=(*child.laterals, lateral), columns=columns)

    def _over(self, plan: OverStep, needed: set[int]) -> _Block:
        made = {item.column.number for item in plan.items}
        child = self.block(plan.child, (needed - made) | _read_by(item.term for item in plan.items))
        if not child.has_rows_of_tables:
            child = self._nested(child)
        return replace(child, columns={**child.columns, **_made(plan.items, child)})

    def _top(self, plan: TopStep, needed: set[int]) -> _Block:
        child = self.block(plan.child, needed | _read_by(plan.order))
        if child.is_closed or child.ranks:
            child = self._nested(child)
        order = tuple(_within(term, child.columns) for term in plan.order)
        sql_terms = {number: term for number, term in child.columns.items() if number in needed}
        return replace(child, order=order, limit=plan.limit, columns=sql_terms)

    # ---- text

    def _nested(self, block: _Block) -> _Block:
        """Return a SELECT that reads ``block`` as a subquery."""
        names = _names([PlanColumn(number, self.names[number]) for number in block.columns])
        named = list(zip(block.columns, names, strict=True))
        lines = self.rendered(block, named or [(-1, "c1")])
        return self._from(lines, dict(named))

    def _from(self, lines: Sequence[PlanLine], names: Mapping[int, str]) -> _Block:
        alias = self._alias("t")
        inner = [PlanLine(f"  {line.text}", line.source) for line in lines]
        tables = (PlanLine("("), *inner, PlanLine(f") AS {alias}"))
        return _Block(tables, {number: SqlTerm(f"{alias}.{name}") for number, name in names.items()})

    def rendered(self, block: _Block, outputs: Sequence[tuple[int, str]]) -> list[PlanLine]:
        """Return the lines of a SELECT. ``outputs``: number and name of each column; a column that the block
        does not have is the constant 1."""
        lines = [PlanLine("SELECT DISTINCT" if block.distinct else "SELECT", block.line)]
        for n, (number, name) in enumerate(outputs, 1):
            term = block.columns.get(number, SqlTerm("1"))
            comma = "," if n < len(outputs) else ""
            lines.append(PlanLine(f"  {term.text} AS {_quoted(name)}{comma}", term.line or block.line))
        first, *rest = block.tables
        lines += [PlanLine(f"FROM {first.text}", first.source), *rest, *block.laterals]
        lines += _clause("WHERE", "AND", block.where)
        if block.groups:
            lines += _clause("GROUP BY", ",", block.groups, block.line)
        lines += _clause("HAVING", "AND", block.having)
        lines += _clause("ORDER BY", ",", block.order)
        if block.limit is not None:
            lines.append(PlanLine(f"LIMIT {block.limit.text}", block.limit.line))
        return lines

    def _alias(self, wanted: str) -> str:
        """Return a name of FROM that is not taken."""
        name, number = wanted, 1
        while name.lower() in self.aliases or (number == 1 and wanted == "t"):
            number += 1
            name = f"{wanted}{number - 1 if wanted == 't' else number}"
        self.aliases.add(name.lower())
        return name

    def _unused(self, wanted: str) -> str:
        """Return a name for a column of LATERAL VIEW that no column of a source has."""
        name, number = wanted, 1
        while name.lower() in self.source_columns:
            number += 1
            name = f"{wanted}_{number}"
        self.source_columns.add(name.lower())
        return name


def _clause(word: str, joint: str, terms: Sequence[SqlTerm], line: int = 0) -> list[PlanLine]:
    lines = []
    for n, term in enumerate(terms):
        begins = word if not n else "  " if joint == "," else f"  {joint}"
        ends = joint if joint == "," and n < len(terms) - 1 else ""
        lines.append(PlanLine(f"{begins} {term.text}{ends}", term.line or line))
    return lines


def _made(items: Iterable[PlanItem], child: _Block) -> dict[int, SqlTerm]:
    return {item.column.number: _within(item.term, child.columns) for item in items}


def _within(term: SqlTerm, columns: Mapping[int, SqlTerm]) -> SqlTerm:
    """Return a term in which each column is written out."""
    ranks = term.ranks or any(columns[number].ranks for number in term.columns)
    text = REFERENCE.sub(lambda found: columns[int(found[1])].text, term.text)
    lines = [columns[number].line for number in sorted(term.columns)]
    return SqlTerm(text, term.line or next(filter(None, lines), 0), ranks)


def _is_long(child: _Block, items: Sequence[PlanItem]) -> bool:
    """Return True if writing the child's columns out in ``items`` would repeat long expressions."""
    read = [int(number) for item in items for number in REFERENCE.findall(item.term.text)]
    return any(
        len(child.columns[number].text) > _LONGEST_REPEATED and read.count(number) > 1 for number in set(read)
    )


def _read_by(terms: Iterable[SqlTerm]) -> set[int]:
    return {number for term in terms for number in term.columns}


def _names(columns: Sequence[PlanColumn]) -> list[str]:
    """Return names for the columns of a subquery: their own where these are plain and distinct."""
    lower = [each.name.lower() for each in columns]
    plain = all(_PLAIN.fullmatch(name) for name in lower) and len(set(lower)) == len(lower)
    return lower if plain else [f"c{n}" for n in range(1, len(columns) + 1)]


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"

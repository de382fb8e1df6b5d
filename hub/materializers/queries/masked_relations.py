"""[core] Tables of a query as the caller sees them: SQL that masks columns and filters rows below the
caller's statement.

The caller's query never reads another relation, so no WHERE, JOIN, ORDER BY, GROUP BY or error of it
concerns a
value that it does not see. A filter of rows is a subquery that no database merges with the statement
around it
(``OFFSET 0``): otherwise a condition of the caller, such as a division, could run on rows that it does not
see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hub.masking.shape import KEY, RowCondition, Visibility, normal, typed_values
from hub.masking.values import HASH_CHARACTERS, HIDDEN_PART, Treatment, pads_of, strictest
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.relations import QueryRelation

# Kinds whose values have a text to hash or to show a part of.
_TEXTS = ("string", "long")
_FENCE = {True: " OFFSET 0", False: " LIMIT -1 OFFSET 0"}


def masked_view(relation: QueryRelation, shape: Visibility, *, postgres: bool) -> QueryRelation:
    """Return a view's relation as seen. Raises MaskRefused for a view of which nothing is shown."""
    if shape.is_open:
        return relation
    shape.require("SQL")
    kinds: dict[str, str] = {}
    written: list[str] = []
    refused: list[str] = []
    for name, kind in relation.columns.items():
        how = shape.of_column(name)
        text, kinds[name] = _column(_quoted(name, postgres), kind, how, postgres)
        written.append(f"{text} AS {_quoted(name, postgres)}")
        if how.form == "refused":
            refused.append(name)
    written += [_quoted(name, postgres) for name in relation.hidden]
    rows = [_condition(each, relation.columns, postgres) for each in shape.rows]
    where = f" WHERE {' AND '.join(rows)}{_FENCE[postgres]}" if rows else ""
    source = f'(SELECT {", ".join(written)} FROM {relation.source} AS "raw"{where})'
    bound = {name: value for name, value in _keys(shape.secret).items() if name in source}
    return replace(relation, source=source, columns=kinds, refused=frozenset(refused), bound=bound)


def _keys(secret: bytes) -> dict[str, str]:
    """Return the keys of hashes as parameters: the text of a statement, which EXPLAIN shows, has none."""
    inner, outer = pads_of(secret)
    return {"mask_key": secret.hex(), "mask_inner": inner.hex(), "mask_outer": outer.hex()}


def _column(column: str, kind: str, how: Treatment, postgres: bool) -> tuple[str, str]:
    """Return the SQL of a column as seen, and its kind."""
    if how.form == "shown":
        return column, kind
    if not how.is_text or kind not in _TEXTS:
        return f"CASE WHEN 1 = 0 THEN {column} END", kind  # NULL of the column's type
    if postgres:
        return _ON_POSTGRES[how.form](f"CAST({column} AS TEXT)", how), "string"
    if how.form == "hashed":
        return f"hub_hashed({column}, :mask_key)", "string"
    return f"hub_partly({column}, {how.last})", "string"


def _hashed(text: str, _how: Treatment) -> str:
    inner, outer = (f"decode(CAST(%({each})s AS TEXT), 'hex')" for each in ("mask_inner", "mask_outer"))
    digest = f"sha256({outer} || sha256({inner} || convert_to({text}, 'UTF8')))"
    return f"left(encode({digest}, 'hex'), {HASH_CHARACTERS})"


def _partly(text: str, how: Treatment) -> str:
    shown = f"'{HIDDEN_PART}' || right({text}, {how.last})"
    whole = f"WHEN length({text}) >= {2 * how.last} THEN {shown}"
    return f"CASE WHEN {text} IS NULL THEN NULL {whole} ELSE '{HIDDEN_PART}' END"


_ON_POSTGRES: Mapping[str, Callable[[str, Treatment], str]] = {"hashed": _hashed, "partial": _partly}


def _condition(test: RowCondition, columns: Mapping[str, str], postgres: bool) -> str:
    kind = columns.get(test.path[0]) if len(test.path) == 1 else None
    values = typed_values(".".join(test.path), kind, test.values)
    if not values:
        return "1 = 0"
    spelled = [_literal(each, postgres) for each in values]
    return f"{_quoted(test.path[0], postgres)} IN ({', '.join(spelled)})"


def _literal(value: str | int | bool, postgres: bool) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    text = value.replace("\0", "\ufffd").replace("'", "''")
    return f"'{text.replace('%', '%%') if postgres else text}'"


def _quoted(name: str, postgres: bool) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    return quoted.replace("%", "%%") if postgres else quoted


# ---- topics


def masked_events(table: EventTable, shape: Visibility) -> EventTable:
    """Return a topic's table as seen. Raises MaskRefused for a topic of which nothing is shown.

    ``blank``: columns that are empty because their kind has no text to hash or to show a part of.
    """
    if shape.is_open:
        return table
    shape.require("SQL")
    columns, refused, blank = dict(table.columns), [], []
    for name, kind in table.columns.items():
        how = topic_column(shape, name)
        if how.form == "refused":
            refused.append(name)
        elif how.is_text and kind in _TEXTS:
            columns[name] = "string"
        elif how.form != "shown":
            blank.append(name)
    if any(each.treatment.form == "refused" for each in shape.fields):
        refused += table.hidden
    return replace(table, columns=columns, shape=shape, refused=frozenset(refused), blank=frozenset(blank))


def topic_column(shape: Visibility, column: str) -> Treatment:
    """Return the treatment of a whole column of a topic; fields within it are treated in its value."""
    if column == f"_{KEY}":
        return shape.key
    return strictest(
        each.treatment
        for each in shape.fields
        if len(each.path) == 1 and normal(each.path[0]) == normal(column) and not column.startswith("_")
    )

"""[core] Encode JSON values as Avro, or refuse them with a path.

This module writes the bytes itself instead of calling fastavro: fastavro recurses in C without a limit,
guesses the branch of a union by its own rules, silently accepts unknown fields, and its errors name no
path. Depth and work are limited here.

Values that JSON lacks are written as text: times as RFC 3339 (a number is in the schema's epoch units),
dates as 2024-02-29, decimals as "12.50", bytes as in Avro's JSON encoding (one character per byte), NaN
and Infinity by name. In a union the value's JSON kind selects the branch; {"branch": value}, as in Avro's
JSON encoding, names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.schema_registry.codecs.avro_scalars import put_bytes, scalar
from hub.schema_registry.codecs.logical_text import logical_of
from hub.schema_registry.codecs.misfit import (
    MOST_STEPS,
    Encode,
    Misfit,
    Out,
    Unfit,
    guess,
    shown,
    step,
    wrong,
)
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.types import AvroField, AvroNode, types_of
from hub.varint import put_signed


class JsonEncoder:
    """Encoder of one schema, prepared for many values. Thread safe.

    ``named`` holds the schemas of referenced types, dependencies first. Raises Unfit for a schema that is
    not valid Avro.
    """

    def __init__(self, schema: Any, named: Iterable[Any] = ()) -> None:
        try:
            self._encode = _EncoderCompiler().encoder(types_of(schema, named), plain=False)
        except InvalidSchema as error:
            raise Unfit(error.message) from None
        except (KeyError, TypeError, ValueError) as error:
            raise Unfit(f"the schema is not valid Avro: {error or type(error).__name__}") from None

    def body(self, value: Any, place: str = "value", most_steps: int = MOST_STEPS) -> bytes:
        """Return the Avro bytes of a JSON value, without framing; ``place`` begins the path. Raises Unfit.

        ``most_steps`` limits the number of values visited, including those of tried branches.
        """
        out = Out()
        out.steps_left = most_steps
        try:
            self._encode(value, out, 0)
        except UnicodeEncodeError:  # no JSON parser in the hub returns one
            raise Unfit(f"{place}: half of a surrogate pair is not text") from None
        except Misfit as misfit:
            path = place + "".join(reversed(misfit.path))
            hint = misfit.hint() if callable(misfit.hint) else misfit.hint
            raise Unfit(f"{path}: {misfit.reason}", hint=hint) from None
        return bytes(out)


@dataclass
class _Field:
    name: str
    encode: Encode
    default: Callable[[Out, int], None] | None


@dataclass(frozen=True, slots=True)
class _UnionBranch:
    """Branch of a union: its index, the names that a tag may use, and the JSON kinds it accepts, best
    first.
    """

    index: int
    names: frozenset[str]
    shown: str
    ranks: Mapping[str, int]
    encode: Encode
    is_record: bool


_KIND = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "text"}
_KIND |= {list: "array", dict: "object"}
# Avro type -> JSON kind -> rank; the lowest is tried first. Only the kind counts, never a text's content.
_RANKS: Mapping[str, Mapping[str, int]] = {
    "null": {"null": 0},
    "boolean": {"boolean": 0},
    "int": {"integer": 0},
    "long": {"integer": 0},
    "float": {"number": 1, "integer": 2, "text": 3},
    "double": {"number": 0, "integer": 2, "text": 3},
    "string": {"text": 0},
    "enum": {"text": 1},
    "bytes": {"text": 2},
    "fixed": {"text": 2},
    "array": {"array": 0},
    "map": {"object": 1},
    "record": {"object": 0},
}


@dataclass
class _EncoderCompiler:
    """Compile types into encoders. ``plain``: the form of defaults, without logical types."""

    made: dict[tuple[AvroNode, bool], Encode] = field(default_factory=dict)

    def encoder(self, node: AvroNode, *, plain: bool) -> Encode:
        found = self.made.get((node, plain))
        if found is None:
            found = self.made[node, plain] = scalar(node, plain=plain) or self._compiled(node, plain)
        return found

    def _compiled(self, node: AvroNode, plain: bool) -> Encode:
        if node.kind == "union":
            return self._union(node, plain)
        if node.kind == "record":
            return self._record(node, plain)
        item = self.encoder(node.item, plain=plain)
        return _array(item) if node.kind == "array" else _map(item)

    def _record(self, node: AvroNode, plain: bool) -> Encode:
        fields: list[_Field] = []
        names: dict[str, None] = {}
        self.made[node, plain] = encode = _record(node.name, fields, names)  # its fields may use it
        for each in node.fields:
            default = self._default(node.name, each) if "default" in each.spec else None
            fields.append(_Field(each.name, self.encoder(each.type, plain=plain), default))
            names[each.name] = None
        return encode

    def _default(self, record: str, of: AvroField) -> Callable[[Out, int], None]:
        """Return a writer of a field's default; its bytes are made on first use and cached."""
        made: list[bytes] = []

        def write(out: Out, depth: int) -> None:
            if not made:
                found = Out()
                try:
                    step(found, 1, depth)
                    self.encoder(of.type, plain=True)(of.spec["default"], found, depth)
                except Misfit as misfit:
                    if misfit.of_default:
                        raise
                    prefix = f'field "{of.name}" of "{record}" is missing, and its default does not fit: '
                    raise Misfit(prefix + misfit.reason, of_default=True) from None
                made.append(bytes(found))
            out.steps_left -= 1 + (len(made[0]) >> 6)
            out += made[0]

        return write

    def _union(self, node: AvroNode, plain: bool) -> Encode:
        branches = [self._branch(index, branch, plain) for index, branch in enumerate(node.inner)]
        return _union(branches, plain)

    def _branch(self, index: int, node: AvroNode, plain: bool) -> _UnionBranch:
        logical = "" if plain else logical_of(node)
        ranks, names, shown_as = dict(_RANKS[node.kind]), {node.kind}, node.kind
        if node.name:
            names, shown_as = {node.name, node.name.rpartition(".")[2]}, f'{node.kind} "{node.name}"'
        if logical:
            shown_as = f"{logical} ({node.kind})"
            ranks["text"] = 1
            if "integer" in ranks:
                ranks["integer"] = 1
            if logical == "decimal":
                ranks |= {"integer": 3, "number": 4}  # only for the error that asks for text
        encode = self.encoder(node, plain=plain)
        return _UnionBranch(index, frozenset(names), shown_as, ranks, encode, node.kind == "record")


def _array(item: Encode) -> Encode:
    def encode(value: Any, out: Out, depth: int) -> None:
        if type(value) is not list:
            raise wrong(value, "array")
        step(out, 1 + len(value), depth)
        if value:
            put_signed(len(value), out)
        for number, each in enumerate(value):
            try:
                item(each, out, depth + 1)
            except Misfit as misfit:
                misfit.path.append(f"[{number}]")
                raise
        out.append(0)

    return encode


def _map(item: Encode) -> Encode:
    def encode(value: Any, out: Out, depth: int) -> None:
        if type(value) is not dict:
            raise wrong(value, "map")
        step(out, 1 + len(value), depth)
        if value:
            put_signed(len(value), out)
        for key, each in value.items():
            put_bytes(key.encode(), out)
            try:
                item(each, out, depth + 1)
            except Misfit as misfit:
                misfit.path.append(f"[{orjson.dumps(key[:80]).decode()}]")
                raise
        out.append(0)

    return encode


def _record(name: str, fields: Sequence[_Field], names: Mapping[str, None]) -> Encode:
    def encode(value: Any, out: Out, depth: int) -> None:
        if type(value) is not dict:
            raise wrong(value, f'record "{name}"')
        step(out, 1 + len(fields), depth)
        present = 0
        for each in fields:
            if each.name in value:
                present += 1
                try:
                    each.encode(value[each.name], out, depth + 1)
                except Misfit as misfit:
                    misfit.path.append(f".{each.name}")
                    raise
            elif each.default is not None:
                each.default(out, depth + 1)
            else:
                _refuse_unknown(value, names, name)
                raise Misfit(f'record "{name}" needs field "{each.name}", which has no default')
        if present != len(value):
            _refuse_unknown(value, names, name)

    return encode


def _union(branches: Sequence[_UnionBranch], plain: bool) -> Encode:
    expected = " or ".join(branch.shown for branch in branches)
    tags = {name: branch for branch in reversed(branches) for name in branch.names}
    by_kind: dict[str, list[_UnionBranch]] = {}
    for kind in _KIND.values():
        fitting = [branch for branch in branches if kind in branch.ranks]
        by_kind[kind] = sorted(fitting, key=lambda branch: (branch.ranks[kind], branch.index))

    def encode(value: Any, out: Out, depth: int) -> None:
        candidates = by_kind[_KIND[type(value)]]
        if len(candidates) == 1 and type(value) is not dict:
            put_signed(candidates[0].index, out)
            candidates[0].encode(value, out, depth + 1)
            return
        step(out, 1, depth)
        tagged = None
        if type(value) is dict and len(value) == 1 and not plain:
            ((tag, inner),) = value.items()
            if tag in tags:
                tagged = _tried(tags[tag], inner, out, depth)
                if tagged is None:
                    return
                tagged.path.append(f'["{tag}"]')
        if tagged is not None and not candidates:
            raise tagged
        if not candidates:
            raise wrong(value, expected)
        if len(candidates) == 1 and tagged is None:
            put_signed(candidates[0].index, out)
            candidates[0].encode(value, out, depth + 1)
            return
        misfit = _first_fit(candidates, value, out, depth)
        if misfit is not None:
            raise tagged or misfit

    return encode


def _tried(branch: _UnionBranch, value: Any, out: Out, depth: int) -> Misfit | None:
    """Write the branch; on a misfit write nothing and return the misfit."""
    mark = len(out)
    put_signed(branch.index, out)
    try:
        branch.encode(value, out, depth + 1)
    except Misfit as misfit:
        del out[mark:]
        return misfit
    return None


def _first_fit(candidates: Sequence[_UnionBranch], value: Any, out: Out, depth: int) -> Misfit | None:
    """Write the first branch that fits and return None; return a misfit when no branch fits.

    Raises Misfit when two records fit, because a guess could be wrong.
    """
    mark, fitted, refusals = len(out), None, []
    for branch in candidates:
        if fitted is not None and not branch.is_record:
            continue
        reached = len(out)
        misfit = _tried(branch, value, out, depth)
        if misfit is not None:
            step(out, 1, depth)
            refusals.append(f"{branch.shown}: {''.join(reversed(misfit.path))} {misfit.reason}")
        elif fitted is None:
            fitted = branch
            if not branch.is_record:
                return None
        else:
            del out[min(mark, reached) :]
            raise Misfit(
                f"fits {fitted.shown} and {branch.shown}",
                f'say which: {{"{max(branch.names, key=len)}": …}}',
            )
    if fitted is not None:
        return None
    return Misfit(f"is {shown(value)} that fits no branch: {'; '.join(refusals)}"[:2_000])


def _refuse_unknown(value: Mapping[str, Any], names: Mapping[str, None], record: str) -> None:
    unknown = next((key for key in value if key not in names), None)
    if unknown is None:
        return
    shown = ", ".join(list(names)[:20])
    raise Misfit(
        f'record "{record}" has no field "{unknown[:80]}"',
        lambda: guess(unknown, names, f"it has {shown or 'no fields'}"),
    )

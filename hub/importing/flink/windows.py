"""[core] Windows of Flink: ``TUMBLE(TABLE t, DESCRIPTOR(time), size)``, ``GROUP BY TUMBLE(time, size)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from hub.importing.expressions import parsed
from hub.importing.report import NotTranslated
from hub.importing.statements import StatementReader, Token

_KINDS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_UNITS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY")
_MILLISECONDS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_CUMULATE = NotTranslated(
    "CUMULATE is not supported", "TUMBLE with the step, and add the steps up when you read the view"
)
_PARTS = {"START": "start", "END": "end", "ROWTIME": "end"}


@dataclass(frozen=True, slots=True)
class TableWindow:
    """A window over a table. ``lengths``: size, then slide of a hopping one."""

    kind: str
    time: str
    lengths: tuple[str, ...]

    def call(self, time: str) -> exp.Expr:
        """Return the call of window(…) over an expression of the time."""
        return window_call(self.kind, parsed(time), self.lengths)


def window_call(kind: str, time: exp.Expr, lengths: Sequence[str]) -> exp.Expr:
    name = "session_window" if kind == "SESSION" else "window"
    return exp.Anonymous(
        this=name, expressions=[time.copy(), *(exp.Literal.string(each) for each in lengths)]
    )


def without_windows(tokens: Sequence[Token]) -> tuple[list[Token], dict[str, TableWindow]]:
    """Return the tokens with each window function replaced by its table, and the windows by table."""
    reader = StatementReader("", tokens)
    plain: list[Token] = []
    windows: dict[str, TableWindow] = {}
    while not reader.ended:
        here = reader.at
        wrapped = reader.take("TABLE (")
        kind = reader.peek()
        if kind in _KINDS and reader.peek(1) == "(" and reader.peek(2) in ("TABLE", "DATA"):
            reader.at += 1
            table, window = _window(reader, kind)
            if wrapped:
                reader.need(")")
            if table.text in windows:
                raise NotTranslated(f"two windows over {table.text}", "make a view of one of them")
            windows[table.text] = window
            plain.append(table)
            continue
        reader.at = here + 1
        plain.append(tokens[here])
    return plain, windows


def _window(reader: StatementReader, kind: str) -> tuple[Token, TableWindow]:
    if kind == "CUMULATE":
        raise _CUMULATE
    parts = []
    for part in reader.lists():
        named = len(part) > 2 and part[1].text == "=>"
        parts.append(part[2:] if named else part)
    if len(parts) < 3 or parts[0][0].upper != "TABLE":
        raise NotTranslated(f"{kind} of this form", f"{kind}(TABLE t, DESCRIPTOR(time), INTERVAL …)")
    time = next(
        (token for token in parts[1] if token.kind in ("word", "quoted") and token.upper != "DESCRIPTOR"),
        None,
    )
    if time is None:
        raise NotTranslated(f"{kind} has no DESCRIPTOR(time)", "name the column of the time")
    lengths = [duration_of(each) for each in parts[2:4]]
    if kind == "HOP":
        lengths.reverse()
    return parts[0][1], TableWindow(kind, time.text, tuple(lengths))


def duration_of(tokens: Sequence[Token]) -> str:
    """Return ``INTERVAL '10' MINUTES`` as ``10 minutes``. Raises NotTranslated."""
    if len(tokens) >= 3 and tokens[0].upper == "INTERVAL":
        return _duration(tokens[1].text, tokens[2].upper)
    raise NotTranslated("the length of a window must be an INTERVAL", "INTERVAL '10' MINUTE")


def _duration(number: str, unit: str) -> str:
    unit = unit.upper().removesuffix("S")
    if unit not in _UNITS:
        raise NotTranslated(f"the unit {unit} is not a unit of the hub", "DAY, HOUR, MINUTE or SECOND")
    try:
        milliseconds = float(number) * _MILLISECONDS[unit]
    except ValueError:
        raise NotTranslated(f"'{number}' is not one number", "INTERVAL '90' MINUTE") from None
    if float(number) == int(float(number)):
        return f"{int(float(number))} {unit.lower()}s"
    return f"{int(milliseconds)} milliseconds"


def grouped_windows(tree: exp.Expr) -> exp.Expr:
    """Rewrite ``TUMBLE(time, size)``, ``TUMBLE_START(…)`` and the like."""

    def rewritten(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Anonymous):
            return node
        kind, _, part = node.name.upper().partition("_")
        if kind not in _KINDS or (part and part not in _PARTS):
            return node
        if kind == "CUMULATE":
            raise _CUMULATE
        time, *lengths = node.expressions
        texts = [interval_text(each) for each in lengths]
        if kind == "HOP":
            texts.reverse()
        call = window_call(kind, time, texts)
        return exp.Dot(this=call, expression=exp.to_identifier(_PARTS[part])) if part else call

    return tree.transform(rewritten)


def interval_text(node: exp.Expr) -> str:
    """Return an interval as a duration. Raises NotTranslated."""
    if not isinstance(node, exp.Interval) or node.args.get("unit") is None:
        raise NotTranslated("the length of a window must be an INTERVAL", "INTERVAL '10' MINUTE")
    return _duration(node.this.name, node.args["unit"].name)

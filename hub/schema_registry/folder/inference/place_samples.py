"""[core] Values seen at one place of the samples: their types, formats and examples."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.errors import CallerError

MOST_KEYS = 2_000  # of one object over all samples; with more, keys are data
MOST_DISTINCT = 32
_EXAMPLES = 3
_EXAMPLE_LENGTH = 60
MOST_DEPTH = 60
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_EMAIL = re.compile(r"[^@\s]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")


_RFC3339 = re.compile(
    r"[^T]*T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
)  # the subset of _TIME that JSON Schema's date-time allows


_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_DATA_KEY = re.compile(r"\d.*|[0-9a-fA-F]{8}-.*|.*[@/\s].*|(?=.*\d)[0-9a-fA-F]{12,}|[A-Za-z]+[-_:]?\d{2,}")
_LONGEST = 2**63
_MS = (946_684_800_000, 4_102_444_800_000)  # 2000 to 2100
_SCALARS = {bool: "boolean", int: "long", float: "double", str: "string"}


@dataclass(slots=True)
class PlaceSamples:
    """Statistics of one place. ``count`` includes nulls, but not samples in which the place is missing."""

    count: int = 0
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)
    has_more_texts: bool = False
    least: int = 0
    most: int = 0
    has_least: bool = False
    examples: list[str] = field(default_factory=list)
    fields: dict[str, PlaceSamples] = field(default_factory=dict)
    items: PlaceSamples | None = None

    def take(self, value: Any, depth: int = 0) -> None:
        """Add one value. Raises CallerError for a value that is nested too deep or is not JSON."""
        if depth > MOST_DEPTH:
            raise CallerError(f"a sample is nested deeper than {MOST_DEPTH}", hint="is it data?")
        self.count += 1
        if value is None:
            self.nulls += 1
            return
        if isinstance(value, Mapping):
            self.kinds["object"] += 1
            for key, each in value.items():
                self._field(str(key)).take(each, depth + 1)
        elif isinstance(value, list | tuple):
            self.kinds["array"] += 1
            self.items = self.items or PlaceSamples()
            for each in value:
                self.items.take(each, depth + 1)
        else:
            self._scalar(value)

    def _field(self, name: str) -> PlaceSamples:
        if name not in self.fields and len(self.fields) >= MOST_KEYS:
            name = next(iter(self.fields))  # it is a map by now: one place stands for the rest
        return self.fields.setdefault(name, PlaceSamples())

    def _scalar(self, value: Any) -> None:
        kind = _SCALARS.get(type(value))
        if kind is None:
            raise CallerError(f"a sample has a value that is not JSON: {type(value).__name__}")
        if kind == "long":
            self.least = min(self.least, value) if self.has_least else value
            self.most = max(self.most, value) if self.has_least else value
            self.has_least = True
            if not -_LONGEST <= value < _LONGEST:
                kind = "double"
        self.kinds[kind] += 1
        text = str(value)
        if kind == "string":
            self.formats.update(_formats(text))
            if text in self.texts or len(self.texts) < MOST_DISTINCT:
                self.texts[text] += 1
            else:
                self.has_more_texts = True
        shown = text if len(text) <= _EXAMPLE_LENGTH else f"{text[: _EXAMPLE_LENGTH - 1]}…"
        if len(self.examples) < _EXAMPLES and shown not in self.examples:
            self.examples.append(shown)

    def add(self, other: PlaceSamples) -> None:
        """Add the statistics of another place."""
        self.count += other.count
        self.nulls += other.nulls
        self.kinds.update(other.kinds)
        self.formats.update(other.formats)
        if other.has_least:
            self.least = min(self.least, other.least) if self.has_least else other.least
            self.most = max(self.most, other.most) if self.has_least else other.most
            self.has_least = True
        self.has_more_texts |= other.has_more_texts
        for text, times in other.texts.items():
            if text in self.texts or len(self.texts) < MOST_DISTINCT:
                self.texts[text] += times
            else:
                self.has_more_texts = True
        self.examples += [each for each in other.examples if each not in self.examples]
        del self.examples[_EXAMPLES:]
        for name, each in other.fields.items():
            self._field(name).add(each)
        if other.items is not None:
            self.items = self.items or PlaceSamples()
            self.items.add(other.items)


def _formats(text: str) -> Iterator[str]:
    """Yield the formats that a text could have besides text; a year outside the calendar is not a time."""
    if len(text) > 320:
        return
    if _UUID.fullmatch(text):
        yield "uuid"
    elif _EMAIL.fullmatch(text):
        yield "email"
    elif _DATE.fullmatch(text) and _moment(text) is not None:
        yield "date"
    elif (match := _TIME.fullmatch(text)) and _moment(text) is not None:
        digits = len((match[3] or ".").rstrip("0")) - 1
        if digits <= 6:
            yield ("timestamp" if match[4] else "local-timestamp") + ("-micros" if digits > 3 else "-millis")
            if _RFC3339.fullmatch(text):
                yield "date-time"
    elif _INTEGER.fullmatch(text) and -_LONGEST <= int(text) < _LONGEST:
        yield "long"
    elif _NUMBER.fullmatch(text) and abs(float(text)) < 1e308:
        yield "double"
    elif text in ("true", "false"):
        yield "boolean"


def _moment(text: str) -> datetime.datetime | None:
    """Parse a text as a time; None when no calendar has it."""
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            return datetime.datetime.fromisoformat(text)
        fraction = (match[3] or "")[:7]
        zone = (match[4] or "").replace("Z", "+00:00")
        moment = datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}{fraction}{zone}")
        return moment.astimezone(datetime.UTC) if zone else moment
    except (ValueError, OverflowError):
        return None

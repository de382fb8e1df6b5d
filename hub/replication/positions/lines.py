"""[core] Positions in lines of text, translated line by line. A line keeps its form:

::

    crm.customers:0:42,web.visits:1:7                  a token of the hub; an unknown position becomes "?"
    {"topic": "crm.orders", "partition": 0, "offset": 42}    JSON; the offset is replaced, null when unknown
    [Partition: crm.orders-0, StartingOffset: 42, …]   a split of Flink's Kafka source, as its tools print it
    partition:0,offset:42;partition:1,offset:300       scan.startup.specific-offsets of Flink SQL
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from hub.errors import CallerError
from hub.record import Positions, TopicPartition
from hub.replication.positions.translation import TranslatedPosition

MOST_CHARACTERS = 1_000_000

Translate = Callable[[TopicPartition, int], TranslatedPosition]

# KafkaPartitionSplit.toString() of Flink's Kafka connector.
_SPLIT = re.compile(r"Partition: (?P<topic>[^\s,]+)-(?P<partition>\d+), StartingOffset: (?P<offset>\d+)")
# FLIP-27's connector for SQL: option scan.startup.specific-offsets.
_STARTUP = re.compile(r"partition:(?P<partition>\d+),offset:(?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class TranslatedLine:
    """A line with translated offsets, and its positions in order."""

    text: str
    positions: tuple[TranslatedPosition, ...]


def translated_line(line: str, number: int, translate: Translate, topic: str = "") -> TranslatedLine:
    """Translate every position of a line. ``topic``: of lines that name none. Raises CallerError (HUB-1640)
    that names the line when it is in none of the forms.
    """
    text = line.strip()
    if len(text) > MOST_CHARACTERS:
        raise _wrong(number, text, f"it has more than {MOST_CHARACTERS:,} characters")
    if text.startswith("{"):
        return _json_line(text, number, translate, topic)
    if "StartingOffset:" in text:
        return _replaced(text, number, _SPLIT, translate, "")
    if _STARTUP.match(text):
        if not topic:
            raise _wrong(number, text, "it names no topic: add --topic")
        return _replaced(text, number, _STARTUP, translate, topic)
    return _token_line(text, number, translate)


def _json_line(text: str, number: int, translate: Translate, topic: str) -> TranslatedLine:
    try:
        body: dict[str, Any] = orjson.loads(text)
        named = body.get("topic", topic)
        partition, offset = body["partition"], body["offset"]
        counts = [type(each) is int and each >= 0 for each in (partition, offset)]
        if not isinstance(named, str) or not named or not all(counts):
            raise ValueError("topic, partition and offset are a text and two numbers from 0")
    except KeyError as error:
        raise _wrong(number, text, f"it has no {error}") from None
    except ValueError as error:
        raise _wrong(number, text, str(error)) from None
    translated_position = translate(TopicPartition(named, partition), offset)
    more = {
        "offset": translated_position.translated,
        "source_offset": offset,
        "precision": translated_position.precision,
    }
    more |= {"read_again": translated_position.read_again} if translated_position.read_again else {}
    more |= {"why": translated_position.why} if translated_position.why else {}
    return TranslatedLine(orjson.dumps({**body, **more}).decode(), (translated_position,))


def _token_line(text: str, number: int, translate: Translate) -> TranslatedLine:
    try:
        positions = Positions.parse(text)
    except CallerError as error:
        raise _wrong(number, text, error.message) from None
    translated_positions = tuple(translate(place, offset) for place, offset in sorted(positions))
    return TranslatedLine(
        ",".join(f"{each.place.topic}:{each.place.partition}:{shown(each)}" for each in translated_positions),
        translated_positions,
    )


def _replaced(
    text: str, number: int, pattern: re.Pattern[str], translate: Translate, topic: str
) -> TranslatedLine:
    translated_positions: list[TranslatedPosition] = []

    def replace(match: re.Match[str]) -> str:
        named = topic or match["topic"]
        translated_positions.append(
            translate(TopicPartition(named, int(match["partition"])), int(match["offset"]))
        )
        before = match.group()[: match.start("offset") - match.start()]
        return before + shown(translated_positions[-1])

    replaced = pattern.sub(replace, text)
    if not translated_positions:
        raise _wrong(number, text, "it has no position")
    return TranslatedLine(replaced, tuple(translated_positions))


def shown(translated_position: TranslatedPosition) -> str:
    """Return the translated offset as text; "?" when it is unknown, which no reader takes for an offset."""
    return "?" if translated_position.translated is None else str(translated_position.translated)


def _wrong(number: int, text: str, why: str) -> CallerError:
    return CallerError(
        f'line {number}: "{text[:80]}" is not a position: {why}',
        hint="write topic:partition:offset, or JSON with topic, partition and offset, one a line",
        code="HUB-1640",
    )

"""[shell] The events of changes, read from the log one by one, as the caller may see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote

import orjson

from hub.caller import Action, Kind, Resource, may
from hub.errors import HubError, NotFound
from hub.masking.shape import MaskRefused
from hub.materializers.history.causes import EventPlace
from hub.topics.browse.bounded_read import FoundMessages, MessageQuery

EventState = Literal["shown", "hidden", "gone", "unknown"]


class Messages(Protocol):
    """Reads messages of a topic as the caller sees them."""

    def find(self, wanted: MessageQuery) -> FoundMessages: ...


@dataclass(frozen=True, slots=True)
class EventShown:
    """An event of a change. ``state``: ``shown``, ``hidden`` from the caller, ``gone`` from the log, or
    ``unknown`` after an error. ``why``: the reason, unless it is shown.
    """

    place: EventPlace
    state: EventState
    why: str = ""
    timestamp_ms: int | None = None
    key: str | None = None
    value: Any = None

    def as_json(self) -> dict[str, Any]:
        place = self.place
        body: dict[str, Any] = {
            "topic": place.topic,
            "partition": place.partition,
            "offset": place.offset,
            "source": place.source,
            "state": self.state,
            "link": f"/topics/{quote(place.topic, safe='')}?partition={place.partition}"
            f"&from={place.offset}&limit=1",
        }
        if self.state != "shown":
            return {**body, "why": self.why}
        return {**body, "timestamp_ms": self.timestamp_ms, "key": self.key, "value": self.value}


class EventReader:
    """Reads the events of one answer; each once, and at most ``most``."""

    def __init__(self, messages: Messages, most: int) -> None:
        self._messages, self._left = messages, most
        self._known: dict[EventPlace, EventShown] = {}

    def shown(self, place: EventPlace) -> EventShown:
        """Return the event as the caller sees it. Errors become its state. Blocks."""
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._read(place)
        return found

    def _read(self, place: EventPlace) -> EventShown:
        if not may(Action.read, Resource(Kind.topic, place.topic)):
            return EventShown(place, "hidden", "you may not read this topic")
        if self._left <= 0:
            return EventShown(place, "unknown", "the answer shows no more events: ask for fewer changes")
        self._left -= 1
        wanted = MessageQuery(place.topic, place.partition, start={place.partition: place.offset}, limit=1)
        try:
            found_messages = self._messages.find(wanted)
        except NotFound:
            return EventShown(place, "gone", "the topic or its partition does not exist any more")
        except MaskRefused as error:
            return EventShown(place, "hidden", error.message)
        except HubError as error:
            return EventShown(place, "unknown", error.message)
        return _state_of(place, found_messages)


def _state_of(place: EventPlace, found_messages: FoundMessages) -> EventShown:
    message = next((each for each in found_messages.messages if each.offset == place.offset), None)
    if message is not None:
        value: Any = None if message.value.form == "null" else message.value.text
        if message.value.form == "json" and not message.value.cut:
            value = orjson.loads(message.value.text)
        why = message.value.problem
        if why:
            return EventShown(place, "hidden", why)
        key = None if message.key.form == "null" else message.key.text
        return EventShown(place, "shown", "", message.timestamp_ms, key, value)
    scanned = found_messages.scanned[0] if found_messages.scanned else None
    if scanned is None or found_messages.unreadable:
        return EventShown(
            place, "unknown", "; ".join(found_messages.unreadable) or "the log did not tell it in time"
        )
    if scanned.begin > place.offset:
        return EventShown(place, "gone", f"removed by age or size: the log begins at offset {scanned.begin}")
    if scanned.next <= place.offset and not found_messages.messages:
        return EventShown(place, "unknown", "the log did not tell it in time")
    return EventShown(place, "gone", "the log has no such event for you: compacted away, or filtered")

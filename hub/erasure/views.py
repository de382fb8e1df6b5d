"""[shell] Compute views without a person's fields, and follow their versions and stores.

``next_step`` decides from the record of a view's versions; ``ViewEraser`` sends the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from hub.erasure.model import Erasure, Place
from hub.errors import HubError
from hub.log import Log
from hub.materializers.definition.declared import table_of
from hub.materializers.stores.open_store import open_store
from hub.materializers.stores.sql.rewriting import rewrite_file
from hub.materializers.stores.sql_store import Store
from hub.materializers.versions.version_records import wanted_record
from hub.materializers.versions.versions import PREFIX, CommandReceived

# Kafka renames the folder of a deleted topic, and removes it after this time by default.
DELETED_AFTER_MS: Final = 60_000
_FILES_GO: Final = "former changelogs and checkpoints are removed; Kafka deletes their files"

Progress = Callable[[], Mapping[str, Any]]
"""Returns the newest progress records by key."""


def next_step(
    place: Place, erasure: str, body: Mapping[str, Any] | None, now_ms: int
) -> tuple[Place, CommandReceived | None]:
    """Return the place's next state, and the command that the view needs. ``body``: the view's ``versions:``
    record. A place without a mark gets it first, and is stored before any command is sent.
    """
    if body is None:
        return place.now("done", "the view has never run, so it has no rows", now_ms), None
    if place.mark is None:
        return replace(place.now("waiting", "its versions are noted", now_ms), mark=int(body["last"])), None
    mark, own = place.mark, f"erase-{erasure}-{place.name}"
    newer = [each for each in body["versions"] if each["number"] > mark]
    former = [each for each in body["versions"] if each["number"] <= mark]
    if place.kind == "view" and not newer:
        if body["answered"] != own:
            command = CommandReceived(own, "erase")
            return place.now("waiting", "it is asked to be computed again", now_ms), command
        if body["refusal"]:
            return place.now("not erased", str(body["refusal"]), now_ms), None
    if not newer:
        return place.now("waiting", "a version over the new rows of its sources is not begun", now_ms), None
    if body["served"] <= mark:
        newest = newer[-1]
        return place.now("waiting", f"version {newest['number']} is {newest['state']}", now_ms), None
    if former:
        number = int(former[0]["number"])
        command = CommandReceived(f"{own}-{number}", "drop", number)
        return place.now("waiting", f"version {number} is dropped", now_ms), command
    if body["dropping"]:
        return place.now("waiting", "former changelogs and checkpoints are removed", now_ms), None
    if place.detail != _FILES_GO or place.at_ms is None or now_ms - place.at_ms < DELETED_AFTER_MS:
        return place.now("waiting", _FILES_GO, now_ms), None
    why = f"version {body['served']} is served; changelogs and checkpoints of earlier ones are removed"
    return place.now("done", why, now_ms), None


class ViewEraser:
    """Follows views and their stores. ``urls``: stores by name."""

    def __init__(
        self, log: Log, progress: Progress, urls: Mapping[str, str], now_ms: Callable[[], int]
    ) -> None:
        self._log, self._progress, self._urls, self._now_ms = log, progress, urls, now_ms
        self._sent: set[str] = set()

    def follow(self, erasure: Erasure) -> list[Place]:
        """Return the next states of the erasure's views, and of the stores whose views are done. Commands
        are sent for places that were stored with their mark. Raises PeerError.
        """
        known, found = self._progress(), list[Place]()
        for place in erasure.of_kind("view", "view over views"):
            if place.state in ("planned", "waiting"):
                body = known.get(f"{PREFIX}{place.name}")
                made, command = next_step(place, erasure.id, body, self._now_ms())
                if command is not None:
                    self._send(place.name, command)
                found.append(made)
        ended = {each.name for each in erasure.of_kind("view", "view over views") if each.state == "done"}
        for place in erasure.of_kind("store"):
            name, _, view = place.name.partition(" of view ")
            if place.state in ("planned", "waiting") and view in ended:
                found.append(self._store(place, name, view, known.get(f"{PREFIX}{view}")))
        return found

    def _send(self, view: str, command: CommandReceived) -> None:
        """Send a command once in the life of this process; the materializer carries an id out once."""
        if command.id in self._sent:
            return
        with closing(self._log.writer()) as writer:
            writer.append([wanted_record(view, command)])
        self._sent.add(command.id)

    def _store(self, place: Place, name: str, view: str, body: Mapping[str, Any] | None) -> Place:
        now_ms = self._now_ms()
        versions = [] if body is None else body["versions"]
        current = {table_of(view, None if each["plain"] else each["number"]) for each in versions}
        try:
            with closing(open_store(self._urls[name])) as store:
                if not isinstance(store, Store):
                    return place.now("not erased", "it is no store of tables", now_ms)
                left = [
                    each for each in store.views() if each.partition("@")[0] == view and each not in current
                ]
                if left:
                    return place.now("waiting", f"table {', '.join(left)} is not removed yet", now_ms)
                store.history.erase(view, keep=sorted(current))
                rewritten = rewrite_file(store.engine)
        except (KeyError, HubError) as error:
            why = error.message if isinstance(error, HubError) else f'no store "{name}" any more'
            return place.now("waiting", why, now_ms)
        how = "and the file was rewritten" if rewritten else "and Postgres freed their files"
        return place.now("done", f"no table or history of an earlier version is left, {how}", now_ms)

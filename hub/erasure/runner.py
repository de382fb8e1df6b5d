"""[shell] Carries out erasures that are due, step by step; each result is in the log before the next step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.entry import Entry, Who
from hub.access_log.writer import AccessLog, NotLogged
from hub.erasure.keys import PersonKeys
from hub.erasure.log import ErasureLog
from hub.erasure.model import Erasure, Erasures, Place, begin, find_erasure, finish
from hub.erasure.places import ProjectFacts, find_places
from hub.erasure.views import ViewEraser
from hub.errors import HubError

log = logging.getLogger(__name__)


@dataclass
class ErasureRunner:
    """Call ``step`` regularly. ``memory_ms``: longest time that a process keeps a key in memory."""

    log: ErasureLog
    keys: PersonKeys
    views: ViewEraser
    facts: Callable[[], ProjectFacts]
    memory_ms: int
    access_log: AccessLog | None
    now_ms: Callable[[], int]

    def step(self) -> None:
        """Take the next step of each erasure that is due. One that fails does not stop the others."""
        for erasure in self.log.all().values():
            if erasure.status not in ("approved", "running"):
                continue
            try:
                self._advance(erasure)
            except HubError as error:
                log.warning("erasure %s waits: %s", erasure.id, error.message)

    def _advance(self, erasure: Erasure) -> None:
        now_ms = self.now_ms()
        if erasure.status == "approved":
            if erasure.due_at_ms is None or now_ms < erasure.due_at_ms:
                return
            places = find_places(self.facts(), erasure.topics)
            self._log(erasure, Outcome.started)
            erasure = self._changed(erasure, lambda one: begin(one, places, now_ms))
        if erasure.status != "running":
            return
        if erasure.keys_gone_at_ms is None:
            erasure = self._destroy(erasure)
        erasure = self._put(erasure, [self._compaction(each, erasure) for each in erasure.of_kind("keys")])
        assert erasure.keys_gone_at_ms is not None
        if self.now_ms() - erasure.keys_gone_at_ms >= self.memory_ms:
            erasure = self._put(erasure, self.views.follow(erasure))
        ended = self._changed(erasure, lambda one: finish(one, self.now_ms()))
        if ended.status == "done":
            self._log(ended, Outcome.ok)

    def _destroy(self, erasure: Erasure) -> Erasure:
        """Destroy the keys of all topics. Their number is stored first: nobody can count them later."""
        noted = [
            replace(
                each.now("waiting", "its key is destroyed", self.now_ms()), mark=self._count(each, erasure)
            )
            for each in erasure.of_kind("topic")
            if each.state == "planned"
        ]
        erasure, done = self._put(erasure, noted), list[Place]()
        for place in erasure.of_kind("topic"):
            if place.state != "waiting":
                continue
            self.keys.destroy(place.name, erasure.person)
            why = f"keys destroyed: {place.mark}; the registry read its log back without them"
            done.append(place.now("done", why, self.now_ms()))
        gone_ms = self.now_ms()
        why = "the key in its topic is destroyed"
        done += [each.now("done", why, gone_ms) for each in erasure.of_kind("copies")]
        wait = f"processes keep keys in memory for up to {self.memory_ms / 1000:g} s"
        done += [
            each.now("waiting", wait, gone_ms)
            for each in erasure.of_kind("view", "view over views", "store")
            if each.state == "planned"
        ]
        return self._changed(erasure, lambda one: replace(one.put(done), keys_gone_at_ms=gone_ms))

    def _count(self, place: Place, erasure: Erasure) -> int:
        return self.keys.count(place.name, erasure.person)

    def _compaction(self, place: Place, erasure: Erasure) -> Place:
        """Return the next state of the log of keys: waiting, files being deleted, gone."""
        gone_ms, now_ms = erasure.keys_gone_at_ms, self.now_ms()
        if place.state not in ("planned", "waiting") or gone_ms is None:
            return place
        if place.mark is None:
            topics = [each.name for each in erasure.of_kind("topic") if each.state == "done"]
            left = self.keys.left_in_log(topics, erasure.person, gone_ms)
            if left:
                self.keys.hasten(gone_ms)
                return place.now("waiting", f"{left} records wait for compaction", now_ms)
            waiting = place.now("waiting", "compacted; Kafka deletes the former segments", now_ms)
            return replace(waiting, mark=0, at_ms=now_ms)
        if now_ms - (place.at_ms or now_ms) < self.keys.delete_delay_ms():
            return place
        why = "read from its start to its end after compaction: no record of these keys is left"
        return place.now("done", why, now_ms)

    def _put(self, erasure: Erasure, places: Sequence[Place]) -> Erasure:
        return self._changed(erasure, lambda one: one.put(places))

    def _changed(self, erasure: Erasure, change: Callable[[Erasure], Erasure]) -> Erasure:
        """Write a change of the erasure as the log has it. Nothing is written if nothing changes."""
        if change(erasure) == erasure:
            return erasure

        def decide(erasures: Erasures) -> Erasure:
            return change(find_erasure(erasures, erasure.id))

        return self.log.submit(decide)

    def _log(self, erasure: Erasure, result: Outcome) -> None:
        """Note the first or the last step in the access log. Raises NotLogged."""
        if self.access_log is None:
            return
        detail = {
            "topics": list(erasure.topics),
            "places": [f"{each.id}: {each.state}" for each in erasure.places],
        }
        who = Who("_hub", "own")
        entry = Entry(LoggedAction.erase, result, who, self.now_ms(), "erasure", erasure.id, detail=detail)
        if result is not Outcome.started:
            self.access_log.result(entry)
            return
        try:
            self.access_log.change(entry).result(self.access_log.timeout_s + 1)
        except Late:
            raise NotLogged("Kafka does not answer") from None

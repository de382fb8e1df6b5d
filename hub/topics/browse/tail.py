"""[shell] New messages of a topic, as they come."""

from __future__ import annotations

from dataclasses import dataclass

from hub.record import Positions
from hub.topics.browse.bounded_read import MOST_WORDS, POLL_RECORDS, MessageQuery
from hub.topics.browse.browse import Browser, visible_shape
from hub.topics.browse.rendered import Message


@dataclass(frozen=True, slots=True)
class Tick:
    """Messages since the last step: ``messages`` are shown, of the ``seen`` ones; ``passed_by`` were skipped
    unread because they arrive too fast. The totals count from the start. The names are those of the JSON that
    ``GET /api/topics/{topic}/tail`` sends.
    """

    messages: tuple[Message, ...]
    seen: int
    passed_by: int
    total_shown: int
    total_seen: int


class Tail:
    """Follow new messages, showing at most ``most`` per step; the others are counted only. Not thread
    safe.
    """

    def __init__(self, browser: Browser, wanted: MessageQuery, most: int = 5) -> None:
        """Start at the current end offsets. Raises like ``Browser.find``."""
        self.browser = browser
        self.most = most
        self._wanted = wanted
        self._words = wanted.words.lower().split()[:MOST_WORDS]
        self._shown = self._read = 0
        ends = browser.ends(wanted)
        self._reader = browser.log.reader()
        self._reader.assign(ends)

    def step(self, wait_s: float = 0.5) -> Tick:
        """Return the newest of the messages that arrived; waits at most ``wait_s`` for any. Raises
        HubError.
        """
        shape = visible_shape(self._wanted)
        page = self._reader.poll(POLL_RECORDS, wait_s)
        passed_by = self._jump() if len(page) >= POLL_RECORDS else 0
        shown: list[Message] = []
        for record in reversed(page):
            if len(shown) == self.most:
                break
            message = self.browser.shown(record, shape, self._words)
            if message is not None:
                shown.append(message)
        self._shown += len(shown)
        self._read += len(page) + passed_by
        return Tick(tuple(shown), len(page), passed_by, self._shown, self._read)

    def _jump(self) -> int:
        """Skip to the end of the topic. Returns the number of skipped offsets."""
        ends, at = self.browser.ends(self._wanted), self._reader.position()
        self._reader.assign(Positions({tp: max(end, at.get(tp)) for tp, end in ends}))
        return sum(max(0, end - at.get(tp)) for tp, end in ends)

    def close(self) -> None:
        self._reader.close()

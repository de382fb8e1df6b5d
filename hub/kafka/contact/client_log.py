"""[edge] The Kafka client's own log lines, each repeated line once in a while."""

from __future__ import annotations

import logging
import time

_SAME_LINE_S = 30.0


class LogLimiter(logging.Filter):
    """librdkafka's lines: each kind once in a while, as warnings at most (what matters is
    raised to the caller)."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.getMessage().split(" ", 1)[0]  # librdkafka's facility: FAIL, GETPID, ...
        now = time.monotonic()
        if now - self._logged_at.get(kind, -_SAME_LINE_S) < _SAME_LINE_S:
            return False
        self._logged_at[kind] = now
        record.levelno = min(record.levelno, logging.WARNING)
        record.levelname = logging.getLevelName(record.levelno)
        return True


client_log = logging.getLogger(f"{__name__}.client")
# A process logs these lines. A command configures no log and does not print them: its error has the reason.
client_log.addHandler(logging.NullHandler())

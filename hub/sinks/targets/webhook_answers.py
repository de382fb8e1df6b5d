"""[core] Judge the answer of a receiver, and the pause before the next attempt.

- 2xx: delivered.
- no connection, 429, 502, 503, 504: the receiver is down or busy. It is waited for without an end, with
  growing pauses or for as long as ``Retry-After`` says; no record is given up for it.
- 401, 403, 404, 405, 407, 410, 3xx: the address or the secret is wrong, whatever the record. The same.
- no answer in time, 408, 425, 500 and other 5xx: this record may be the reason. It is tried again up to
  ``attempts`` times, then refused.
- other 4xx (400, 409, 413, 422 …): the receiver refuses this record for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

_BUSY = (429, 502, 503, 504)
_OF_ADDRESS = (401, 403, 404, 405, 407, 410)
_AGAIN = (408, 425)
LONGEST_PAUSE_S = 3_600.0
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """Answer to one request. ``status`` None: none came; ``connected``: whether the request was sent."""

    status: int | None
    text: str = ""
    retry_after: str = ""
    connected: bool = True


@dataclass(frozen=True, slots=True)
class DeliveryVerdict:
    """``down``: the receiver does not take any record now. ``again``: this record is tried again."""

    kind: Literal["delivered", "down", "again", "refused"]
    reason: str = ""
    pause_s: float = 0.0


def judge(answer: WebhookAnswer, attempt: int, attempts: int, failures: int, now_s: float) -> DeliveryVerdict:
    """Return what to do after an answer.

    ``attempt``: number of this attempt at the record, from 1, without those that found the receiver down.
    ``failures``: how often in a row the receiver was down, or this record failed, before. ``now_s``: epoch
    seconds.
    """
    status = answer.status
    if status is not None and 200 <= status < 300:
        return DeliveryVerdict("delivered")
    text = f": {answer.text}" if answer.text else ""
    reason = f"HTTP {status}{text}" if status is not None else answer.text or "no answer"
    requested_s = retry_after_s(answer.retry_after, now_s)
    grown_s = min(FIRST_PAUSE_S * 2.0 ** min(failures, 16), MOST_PAUSE_S)
    pause_s = grown_s if requested_s is None else requested_s
    if not answer.connected or status in _BUSY or status in _OF_ADDRESS or _is_redirect(status):
        return DeliveryVerdict("down", reason, pause_s)
    if status is None or status in _AGAIN or status >= 500:
        if attempt < attempts:
            return DeliveryVerdict("again", reason, pause_s)
        return DeliveryVerdict("refused", f"{attempt} attempts, the last one: {reason}")
    return DeliveryVerdict("refused", reason)


def _is_redirect(status: int | None) -> bool:
    return status is not None and status < 400


def retry_after_s(text: str, now_s: float) -> float | None:
    """Return the pause of a ``Retry-After`` header, at most an hour; None for another text.

    >>> retry_after_s("7", 0.0), retry_after_s("soon", 0.0)
    (7.0, None)
    >>> retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 20.0)
    40.0
    """
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return min(float(text), LONGEST_PAUSE_S)
    try:
        at_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(0.0, at_s - now_s), LONGEST_PAUSE_S)

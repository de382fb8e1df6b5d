"""[core] Signed report of an erasure: each place with its result, or why it is not erased."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.access_log import signed_reports
from hub.access_log.chain import LogSigner
from hub.access_log.entry import iso
from hub.erasure.model import Erasure, Place

_KIND = "erasure proof"


def proof_of(erasure: Erasure, signer: LogSigner, now_ms: int) -> dict[str, Any]:
    """Return the signed report of an erasure in its present state."""
    states = [each.state for each in erasure.places]
    report = {
        "erasure": erasure.id,
        "person": erasure.person,
        "topics": list(erasure.topics),
        "reason": erasure.reason,
        "status": erasure.status,
        "requested": f"{iso(erasure.requested_at_ms)} by {erasure.requested_by}",
        "approved": _when(erasure.approved_at_ms, erasure.approved_by),
        "keys_destroyed": _when(erasure.keys_gone_at_ms),
        "ended": _when(erasure.ended_at_ms, erasure.ended_by),
        "erased_everywhere": bool(states) and all(each == "done" for each in states),
        "places": [_place(each) for each in erasure.places],
        "made": iso(now_ms),
    }
    return signed_reports.signed_report(_KIND, report, signer)


def signature_holds(proof: Mapping[str, Any]) -> bool:
    """Return whether a proof has the signature of the key that it names."""
    return signed_reports.signature_holds(_KIND, proof)


def _place(place: Place) -> dict[str, Any]:
    return {
        "place": place.id,
        "action": place.action,
        "state": place.state,
        "detail": place.detail,
        "at": _when(place.at_ms),
    }


def _when(at_ms: int | None, by: str = "") -> str | None:
    if at_ms is None:
        return None
    return f"{iso(at_ms)} by {by}" if by else iso(at_ms)

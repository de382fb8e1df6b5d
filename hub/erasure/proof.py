"""[core] Signed report of an erasure: each place with its result, its verification, or why it is not erased.

The signature is Ed25519 with the key that signs checkpoints of the access log, over the report as JSON with
sorted keys, after the line ``hub erasure proof``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hub.access_log.chain import LogSigner
from hub.access_log.entry import iso
from hub.erasure.model import Erasure, Place


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
    return {"report": report, "key": signer.public, "signature": signer.sign(_signed(report))}


def signature_holds(proof: Mapping[str, Any]) -> bool:
    """Return whether a proof has the signature of the key that it names."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(proof["key"])))
        key.verify(bytes.fromhex(str(proof["signature"])), _signed(proof["report"]))
    except (KeyError, ValueError, TypeError, InvalidSignature):
        return False
    return True


def _signed(report: Any) -> bytes:
    return b"hub erasure proof\n" + orjson.dumps(report, option=orjson.OPT_SORT_KEYS)


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

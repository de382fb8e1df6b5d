"""[core] Reports of an operation, signed with the key of the access log's checkpoints.

The signature is Ed25519 over the report as JSON with sorted keys, after a line with the kind of the report.
So a report of one kind is not accepted as one of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from hub.access_log.chain import LogSigner, is_signed


def signed_report(kind: str, report: Mapping[str, Any], signer: LogSigner) -> dict[str, Any]:
    """Return a report with the key that signs it and the signature. ``kind``: such as "erasure proof"."""
    return {"report": report, "key": signer.public, "signature": signer.sign(_text(kind, report))}


def signature_holds(kind: str, signed: Mapping[str, Any]) -> bool:
    """Return whether a report of this kind has the signature of the key that it names."""
    return "report" in signed and is_signed(signed, _text(kind, signed["report"]))


def _text(kind: str, report: Any) -> bytes:
    return f"hub {kind}\n".encode() + orjson.dumps(report, option=orjson.OPT_SORT_KEYS)

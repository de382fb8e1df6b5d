"""[core] Status of the verification of a view in a store, as it is reported and alerted on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import RULES, Observation, RuleChanges, RuleObservations, Verdict
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.verification.fingerprint import REGIONS, ComparisonResult, KeyDifference
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.record import NewRecord

PREFIX = "proof:"
RULE, UNPROVED = "view-differs", "view-unproved"


# Reports: at once when a state changes, soon after a comparison, else at this interval; older ones are stale.
SOON_S, REPORT_S, STALE_S = 5.0, 30.0, 90.0


# Upper bound of a first comparison's estimate; without progress the estimate would grow without limit.
MOST_NEEDED_S = 86_400.0


class VerificationState(StrEnum):
    """State of a view's verification in one store. ``OPEN`` and ``UNKNOWN`` have a reason.

    ``MATCHES``: at the reported positions the store's rows equaled the log's fold. ``DIFFERS``: they did not,
    and no later comparison matched. ``OPEN``: not compared yet, or not recently. ``UNKNOWN``: it cannot be
    compared.
    """

    DIFFERS = "DIFFERS"
    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    MATCHES = "MATCHES"


_VERDICTS = {VerificationState.DIFFERS: Verdict.BAD, VerificationState.MATCHES: Verdict.GOOD}
SEVERITY = {state: rank for rank, state in enumerate(VerificationState)}


@dataclass(frozen=True, slots=True)
class VerificationStatus:
    """Verification status of a view in a store.

    ``reason``: why it is OPEN or UNKNOWN, or how it DIFFERS. ``compared_ms``: time of the last comparison, at
    ``positions`` of its changelog; ``matched_ms``: time of the last match. ``regions``: number of regions
    that differ; ``keys``: the first keys that do. ``needs_s``: estimated time until it is compared.
    """

    view: str
    table: str
    state: VerificationState = VerificationState.OPEN
    reason: str = "not compared yet"
    since_ms: int = 0
    compared_ms: int | None = None
    matched_ms: int | None = None
    positions: str = ""
    rows: int | None = None
    fingerprint: str = ""
    regions: int = 0
    keys: tuple[KeyDifference, ...] = ()
    needs_s: float = 0.0

    def now(self, state: VerificationState, reason: str, now_ms: int) -> VerificationStatus:
        """Return the status with this state and reason, the last comparison kept."""
        since_ms = self.since_ms if state is self.state else now_ms
        return replace(self, state=state, reason=reason, since_ms=since_ms)

    def body(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "state": str(self.state),
            "reason": self.reason or None,
            "since_ms": self.since_ms,
            "compared_ms": self.compared_ms,
            "matched_ms": self.matched_ms,
            "positions": self.positions,
            "rows": self.rows,
            "fingerprint": self.fingerprint,
            "regions": self.regions,
            "differing": [{"key": each.key, "why": each.why} for each in self.keys],
            "needs_s": round(self.needs_s),
        }


def verification_of(view: str, body: Mapping[str, Any]) -> VerificationStatus:
    """Read a status. Raises KeyError, TypeError or ValueError for a format of another version of the hub."""
    return VerificationStatus(
        view,
        str(body["table"]),
        VerificationState(body["state"]),
        str(body["reason"] or ""),
        int(body["since_ms"]),
        body["compared_ms"],
        body["matched_ms"],
        str(body["positions"]),
        body["rows"],
        str(body["fingerprint"]),
        int(body["regions"]),
        tuple(KeyDifference(str(each["key"]), str(each["why"])) for each in body["differing"]),
        float(body.get("needs_s") or 0),  # earlier versions of the hub did not report it
    )


def _reason(comparison_result: ComparisonResult) -> str:
    """Return the reason without keys: they are rows of the view, and not every reader of the status may read
    those.
    """
    rows = f"{comparison_result.store.rows:,} rows, the changelog has {comparison_result.changelog.rows:,}; "
    many = f"{len(comparison_result.regions)} of {REGIONS} regions of keys differ"
    return f"{rows if comparison_result.store.rows != comparison_result.changelog.rows else ''}{many}"


def aged(proof: VerificationStatus, every_s: float, cost_s: float, now_ms: int) -> VerificationStatus:
    """Return OPEN for a match older than some turns. ``cost_s``: a comparison's duration with pauses."""
    if proof.state is not VerificationState.MATCHES or proof.compared_ms is None:
        return proof
    age_s, most_s = (now_ms - proof.compared_ms) / 1000, _PAUSES * (every_s + cost_s) + STALE_S
    if age_s <= most_s:
        return proof
    return proof.now(VerificationState.OPEN, f"not compared for {age_s:.0f} s", now_ms)


def record(store: str, proofs: Iterable[VerificationStatus], now_ms: int) -> NewRecord:
    body = {"store": store, "at_ms": now_ms, "views": {each.view: each.body() for each in proofs}}
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{store}".encode(), orjson.dumps(body))


def forgotten(store: str) -> NewRecord:
    """Return the record that withdraws the report on a store."""
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{store}".encode(), None)


def reported_verifications(
    records: Mapping[str, Any], now_ms: int, only: str | None = None
) -> list[tuple[str, VerificationStatus]]:
    """Return (store, status) of every view (or of ``only``) from progress records by key. Stale reports are
    UNKNOWN.
    """
    found = []
    for key in sorted(key for key in records if key.startswith(PREFIX)):
        report = records[key]
        views: Mapping[str, Any] = report.get("views", {})
        wanted = sorted(views) if only is None else [only] if only in views else []
        for view, body in ((name, views[name]) for name in wanted):
            try:
                proof, at_ms = verification_of(view, body), int(report["at_ms"])
            except (KeyError, TypeError, ValueError):
                continue  # another version of the hub wrote it, and will write it again
            if now_ms - at_ms > STALE_S * 1000:
                why = f"the applier has not reported for {(now_ms - at_ms) // 1000} s"
                proof = replace(proof, state=VerificationState.UNKNOWN, reason=why, since_ms=at_ms)
            found.append((str(report["store"]), proof))
    return found


def shown(proof: VerificationStatus, *, keys: bool) -> dict[str, Any]:
    """Return the status as JSON. ``keys``: whether the caller may read the view's rows."""
    body = proof.body()
    return body if keys else {**body, "differing": []}


def rows_of(
    records: Mapping[str, Any], now_ms: int, sees: Callable[[str], bool], reads: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Return every view and store, differences first."""
    found = [(store, proof) for store, proof in reported_verifications(records, now_ms) if sees(proof.view)]
    found.sort(key=lambda each: (SEVERITY[each[1].state], each[1].view, each[0]))
    return [
        {"view": proof.view, "store": store, **shown(proof, keys=reads(proof.view))} for store, proof in found
    ]


def observe_verifications(
    records: Mapping[str, Any], changes: RuleChanges, now_ms: int, owners: Mapping[str, str]
) -> RuleObservations:
    """Observations of the rule ``view-differs``: every verified view and store, and every recomputation
    check.
    """
    observations = []
    for store, proof in reported_verifications(records, now_ms):
        verdict = _VERDICTS.get(proof.state, Verdict.UNKNOWN)
        summary = f"store {store} of view {proof.view} differs from its changelog"
        observations.append(
            Observation(
                labels_of({"view": proof.view, "store": store}),
                verdict,
                summary if verdict is Verdict.BAD else "",
                float(proof.regions) if verdict is Verdict.BAD else None,
                labels_of({"owner": owners.get(proof.view, "")}),
                # Without keys: recipients of alerts may not be allowed to read the view.
                proof.reason,
            )
        )
    return RuleObservations(changes.rule(RULE), (*observations, *_opinions(records, owners)))


def is_unproved(proof: VerificationStatus, now_ms: int) -> bool:
    """Return whether the rows' state has been unverified for too long.

    A view in its first comparison that needs longer than ``for`` of the rule ``view-unproved`` gets the extra
    time; one without reports (UNKNOWN) does not.
    """
    if proof.state in _VERDICTS:
        return False
    own_ms = proof.needs_s * 1000 - RULES[UNPROVED].for_ms
    return proof.state is not VerificationState.OPEN or now_ms - proof.since_ms >= own_ms


def observe_unverified(
    records: Mapping[str, Any], changes: RuleChanges, now_ms: int, owners: Mapping[str, str], *, on: bool
) -> RuleObservations:
    """Observations of the rule ``view-unproved``: every reported view and store.

    The rule's ``for`` counts from the last match, across restarts of the applier, which begin with OPEN.
    ``on``: whether verification is enabled.
    """
    rule = changes.rule(UNPROVED)
    if not on:
        return RuleObservations(rule, absent=Verdict.GOOD)
    observations = []
    for store, proof in reported_verifications(records, now_ms):
        if proof.state in _VERDICTS:
            verdict = Verdict.GOOD  # it was compared: a difference belongs to the other rule
        else:
            verdict = Verdict.BAD if is_unproved(proof, now_ms) else Verdict.UNKNOWN
        bad = verdict is Verdict.BAD
        since_ms = proof.since_ms if proof.matched_ms is None else proof.matched_ms
        observations.append(
            Observation(
                labels_of({"view": proof.view, "store": store}),
                verdict,
                f"store {store} of view {proof.view} has not been compared with its changelog" if bad else "",
                max(0, now_ms - since_ms) / 1000 if bad else None,
                labels_of({"owner": owners.get(proof.view, "")}),
                "" if verdict is Verdict.GOOD else f"{proof.state}: {proof.reason}",
            )
        )
    for view, (state, why, at_ms) in reported_states(records).items():
        bad = state not in _VERDICTS
        observations.append(
            Observation(
                labels_of({"view": view, "store": ""}),
                Verdict.BAD if bad else Verdict.GOOD,
                f"view {view} could not be computed again from its sources" if bad else "",
                max(0, now_ms - at_ms) / 1000 if bad else None,
                labels_of({"owner": owners.get(view, "")}),
                why if bad else "",
            )
        )
    return RuleObservations(rule, tuple(observations))


def reported_states(records: Mapping[str, Any]) -> dict[str, tuple[VerificationState, str, int]]:
    """Return the last recomputation check of each view: (state, reason, epoch ms)."""
    found = {}
    for key in sorted(key for key in records if key.startswith(VERSIONS)):
        opinion = records[key].get("recomputed")
        if opinion is not None:
            status = VerificationState(opinion["state"]), str(opinion["reason"] or ""), int(opinion["at_ms"])
            found[key.removeprefix(VERSIONS)] = status
    return found


def _opinions(records: Mapping[str, Any], owners: Mapping[str, str]) -> Iterator[Observation]:
    for view, (state, why, _) in reported_states(records).items():
        verdict = _VERDICTS.get(state, Verdict.UNKNOWN)
        summary = f"view {view}, computed again from its sources, has other rows: {why}"
        yield Observation(
            labels_of({"view": view, "store": ""}),
            verdict,
            summary if verdict is Verdict.BAD else "",
            None,
            labels_of({"owner": owners.get(view, "")}),
            why if verdict is Verdict.UNKNOWN else "",
        )


def named(keys: Sequence[KeyDifference]) -> str:
    """Format the keys for a log line."""
    return "; ".join(f'key "{each.key}": {each.why}' for each in keys[:3])


# A comparison older than this many pauses is outdated.
_PAUSES = 5


def compared(
    before: VerificationStatus, comparison_result: ComparisonResult, now_ms: int
) -> VerificationStatus:
    """Return the status after a comparison."""
    state = VerificationState.DIFFERS if comparison_result.regions else VerificationState.MATCHES
    reason = _reason(comparison_result) if comparison_result.regions else ""
    return replace(
        before.now(state, reason, now_ms),
        compared_ms=now_ms,
        matched_ms=before.matched_ms if comparison_result.regions else now_ms,
        positions=str(comparison_result.positions),
        rows=comparison_result.store.rows,
        fingerprint=comparison_result.store.value,
        regions=len(comparison_result.regions),
        keys=comparison_result.keys,
    )

"""[core] View = log, proved all the time: fingerprints of a view's state, region by region, and what is told of their comparison.

::

    changelog ─ followed ─▶ of each key the newest version: a hash of its row ─▶ a sum a region, − old + new ┐
    store ─ a cut: rows and positions of one moment ────────────────────────────▶ a sum a region            ┴ equal?

A fingerprint is the number of live rows and the sum of their hashes modulo 2^64: it knows no order, and a row that is replaced takes
its old hash out and puts its new one in. A region is the first bits of a key's hash, so that of a difference only a part of
the keys is walked. Equal fingerprints are equal states but for a chance of 2^-64; the hash has no secret, so who chooses rows can
make two states alike.

The fold's sums are kept by the rows' generation too: rows of earlier ones are swept out of a store without a record of their own
(``Cut.swept``), and of several stores each has its own moment for it.

What is told: a record ``proof:<store>`` in the topic ``_hub.progress``, JSON, with every view that readers get from that store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import RULES, Observation, RuleChanges, RuleObservations, Verdict
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.verification.verify import KeyDifference
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.record import NewRecord

PREFIX = "proof:"
RULE, UNPROVED = "view-differs", "view-unproved"
REGIONS = 256
_SHIFT = 56
_HALF = 1 << 63
_MODULUS = 1 << 64
# How many differing keys are named, and of how many regions keys are looked for.
MOST_NAMED, MOST_WALKED = 20, 8
# A prover tells at once when a state changes, soon when something was compared, else so often; what is older is no word of now.
SOON_S, TELL_S, STALE_S = 5.0, 30.0, 90.0
# What a first comparison says that it needs is believed up to a day: one that all but stands would need for ever.
MOST_NEEDED_S = 86_400.0
# A proof older than this many pauses says nothing of now.
_PAUSES = 5


class VerificationState(StrEnum):
    """``MATCHES``: at the positions that are told the store's rows were the log's fold. ``DIFFERS``: they were not, and since then no
    comparison said otherwise. ``OPEN``: not compared yet, or not for a while; ``UNKNOWN``: it cannot be. Both say why."""

    DIFFERS = "DIFFERS"
    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    MATCHES = "MATCHES"


_VERDICTS = {VerificationState.DIFFERS: Verdict.BAD, VerificationState.MATCHES: Verdict.GOOD}
SEVERITY = {state: rank for rank, state in enumerate(VerificationState)}


def region_of(hashed: int) -> int:
    """Of a key's hash, a signed number of 64 bits. Regions are ranges of hashes.

    >>> region_of(-(2**63)), region_of(-1), region_of(0), region_of(2**63 - 1)
    (0, 127, 128, 255)
    """
    return (hashed + _HALF) >> _SHIFT


def hashes_of(region: int) -> tuple[int, int]:
    """The first and the last hash of a region.

    >>> hashes_of(0)[0] == -(2**63), hashes_of(255)[1] == 2**63 - 1
    (True, True)
    """
    first = (region << _SHIFT) - _HALF
    return first, first + (1 << _SHIFT) - 1


class Fingerprint:
    """Of a set of rows, by region: how many, and the sum of their hashes."""

    __slots__ = ("counts", "sums")

    def __init__(self) -> None:
        self.counts = [0] * REGIONS
        self.sums = [0] * REGIONS

    def add(self, key_hash: int, row_hash: int) -> None:
        region = (key_hash + _HALF) >> _SHIFT
        self.counts[region] += 1
        self.sums[region] += row_hash

    def put(self, region: int, count: int, total: int) -> None:
        self.counts[region] += count
        self.sums[region] += total

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def value(self) -> str:
        """Of all regions together, 16 hex digits."""
        return f"{sum(self.sums) % _MODULUS:016x}"

    def differing(self, other: Fingerprint) -> list[int]:
        """The regions in which two differ."""
        mine, others = (
            [(count, total % _MODULUS) for count, total in zip(each.counts, each.sums, strict=True)]
            for each in (self, other)
        )
        return [region for region in range(REGIONS) if mine[region] != others[region]]


class FingerprintSums:
    """The fold's fingerprint as it goes on: counts and sums by generation and region. ``changed``: cells that were not taken yet."""

    def __init__(self, cells: Iterable[tuple[int, int, int, int]] = ()) -> None:
        self._cells = {(generation, region): (count, total) for generation, region, count, total in cells}
        self._changed: set[tuple[int, int]] = set()

    def change(self, key_hash: int, version: int, row_hash: int | None, sign: int) -> None:
        """A live row comes (1) or goes (-1); None: it was no live row."""
        if row_hash is None:
            return
        cell = version >> GENERATION_SHIFT, region_of(key_hash)
        count, total = self._cells.get(cell, (0, 0))
        self._cells[cell] = count + sign, (total + sign * row_hash) % _MODULUS
        self._changed.add(cell)

    def changed(self) -> Iterator[tuple[int, int, int, int]]:
        """The cells that changed since this was asked last: (generation, region, count, sum)."""
        for cell in sorted(self._changed):
            yield (*cell, *self._cells[cell])
        self._changed.clear()

    def fingerprint(self, swept: int) -> Fingerprint:
        """Of the live rows of versions from ``swept`` on, the first version of a generation."""
        found, first = Fingerprint(), swept >> GENERATION_SHIFT
        for (generation, region), (count, total) in self._cells.items():
            if generation >= first:
                found.put(region, count, total)
        return found


@dataclass(frozen=True, slots=True)
class VerificationStatus:
    """What is known of a view in a store. ``reason``: why it is OPEN or UNKNOWN, and how it DIFFERS. ``compared_ms``: when it was compared
    last, at ``positions`` of its changelog; ``matched_ms``: when it matched last. ``regions``: how many differ; ``keys``: the first
    that do. ``needs_s``: how long it may take until it is compared, as far as the prover can tell."""

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
        """The same as ``state``, with what was found before."""
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
    """Raises KeyError, TypeError or ValueError for what this version of the hub does not write."""
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
        float(body.get("needs_s") or 0),  # earlier versions of the hub did not tell it
    )


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """A comparison at ``positions``; ``keys``: the first that differ, of ``walked`` regions of those that do."""

    wanted: Fingerprint
    store: Fingerprint
    positions: str
    regions: tuple[int, ...] = ()
    keys: tuple[KeyDifference, ...] = ()


def compared(before: VerificationStatus, found: ComparisonResult, now_ms: int) -> VerificationStatus:
    """What is known after a comparison."""
    state = VerificationState.DIFFERS if found.regions else VerificationState.MATCHES
    reason = _reason(found) if found.regions else ""
    return replace(
        before.now(state, reason, now_ms),
        compared_ms=now_ms,
        matched_ms=before.matched_ms if found.regions else now_ms,
        positions=found.positions,
        rows=found.store.rows,
        fingerprint=found.store.value,
        regions=len(found.regions),
        keys=found.keys,
    )


def _reason(found: ComparisonResult) -> str:
    """Without keys: they are rows of the view, and not everybody who sees the view may read it."""
    rows = f"{found.store.rows:,} rows, the changelog says {found.wanted.rows:,}; "
    many = f"{len(found.regions)} of {REGIONS} regions of keys differ"
    return f"{rows if found.store.rows != found.wanted.rows else ''}{many}"


def aged(proof: VerificationStatus, every_s: float, cost_s: float, now_ms: int) -> VerificationStatus:
    """A match that is older than some turns is one no more. ``cost_s``: what a comparison takes, pauses included."""
    if proof.state is not VerificationState.MATCHES or proof.compared_ms is None:
        return proof
    age_s, most_s = (now_ms - proof.compared_ms) / 1000, _PAUSES * (every_s + cost_s) + STALE_S
    if age_s <= most_s:
        return proof
    return proof.now(VerificationState.OPEN, f"not compared for {age_s:.0f} s", now_ms)


# ---- as it is told


def record(store: str, proofs: Iterable[VerificationStatus], now_ms: int) -> NewRecord:
    body = {"store": store, "at_ms": now_ms, "views": {each.view: each.body() for each in proofs}}
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{store}".encode(), orjson.dumps(body))


def forgotten(store: str) -> NewRecord:
    """Nobody proves anything of the store any more."""
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{store}".encode(), None)


def reported_verifications(
    told: Mapping[str, Any], now_ms: int, only: str | None = None
) -> list[tuple[str, VerificationStatus]]:
    """(store, proof) of every view (or ``only`` one), out of progress records by their keys. What was told too long ago is UNKNOWN."""
    found = []
    for key in sorted(key for key in told if key.startswith(PREFIX)):
        report = told[key]
        views: Mapping[str, Any] = report.get("views", {})
        wanted = sorted(views) if only is None else [only] if only in views else []
        for view, body in ((name, views[name]) for name in wanted):
            try:
                proof, at_ms = verification_of(view, body), int(report["at_ms"])
            except (KeyError, TypeError, ValueError):
                continue  # another version of the hub wrote it, and will write it again
            if now_ms - at_ms > STALE_S * 1000:
                why = f"the applier has not told for {(now_ms - at_ms) // 1000} s"
                proof = replace(proof, state=VerificationState.UNKNOWN, reason=why, since_ms=at_ms)
            found.append((str(report["store"]), proof))
    return found


def shown(proof: VerificationStatus, *, keys: bool) -> dict[str, Any]:
    """As programs see it; ``keys``: whether who asks may read the view's rows."""
    body = proof.body()
    return body if keys else {**body, "differing": []}


def rows_of(
    told: Mapping[str, Any], now_ms: int, sees: Callable[[str], bool], reads: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Every view and store, what differs first."""
    found = [(store, proof) for store, proof in reported_verifications(told, now_ms) if sees(proof.view)]
    found.sort(key=lambda each: (SEVERITY[each[1].state], each[1].view, each[0]))
    return [
        {"view": proof.view, "store": store, **shown(proof, keys=reads(proof.view))} for store, proof in found
    ]


def observe_verifications(
    told: Mapping[str, Any], changes: RuleChanges, now_ms: int, owners: Mapping[str, str]
) -> RuleObservations:
    """Rule ``view-differs``, of every view and store that is proved, and of every second opinion."""
    observations = []
    for store, proof in reported_verifications(told, now_ms):
        verdict = _VERDICTS.get(proof.state, Verdict.UNKNOWN)
        words = f"store {store} of view {proof.view} is not what its changelog says"
        observations.append(
            Observation(
                labels_of({"view": proof.view, "store": store}),
                verdict,
                words if verdict is Verdict.BAD else "",
                float(proof.regions) if verdict is Verdict.BAD else None,
                labels_of({"owner": owners.get(proof.view, "")}),
                # Without keys: who is told of alerts need not be who may read the view.
                proof.reason,
            )
        )
    return RuleObservations(changes.rule(RULE), (*observations, *_opinions(told, owners)))


def is_unproved(proof: VerificationStatus, now_ms: int) -> bool:
    """Whether nobody can say if the rows are the log's. One that is still read for the first time, and needs longer than the rule
    ``view-unproved`` waits, has the difference for itself; what nobody tells of any more (UNKNOWN) has not."""
    if proof.state in _VERDICTS:
        return False
    own_ms = proof.needs_s * 1000 - RULES[UNPROVED].for_ms
    return proof.state is not VerificationState.OPEN or now_ms - proof.since_ms >= own_ms


def observe_unverified(
    told: Mapping[str, Any], changes: RuleChanges, now_ms: int, owners: Mapping[str, str], *, on: bool
) -> RuleObservations:
    """Rule ``view-unproved``, of every view and store that was told of. How long it is so already the rule's ``for`` counts: over
    restarts of the applier, which begin with OPEN. ``on``: whether views are to be proved at all."""
    rule = changes.rule(UNPROVED)
    if not on:
        return RuleObservations(rule, absent=Verdict.GOOD)
    observations = []
    for store, proof in reported_verifications(told, now_ms):
        if proof.state in _VERDICTS:
            verdict = Verdict.GOOD  # it was compared: that it differs is the other rule's
        else:
            verdict = Verdict.BAD if is_unproved(proof, now_ms) else Verdict.UNKNOWN
        bad = verdict is Verdict.BAD
        since_ms = proof.since_ms if proof.matched_ms is None else proof.matched_ms
        observations.append(
            Observation(
                labels_of({"view": proof.view, "store": store}),
                verdict,
                f"nothing shows that store {store} of view {proof.view} is what its changelog says"
                if bad
                else "",
                max(0, now_ms - since_ms) / 1000 if bad else None,
                labels_of({"owner": owners.get(proof.view, "")}),
                "" if verdict is Verdict.GOOD else f"{proof.state}: {proof.reason}",
            )
        )
    for view, (state, why, at_ms) in reported_states(told).items():
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


def reported_states(told: Mapping[str, Any]) -> dict[str, tuple[VerificationState, str, int]]:
    """What the last second opinion of each view said: (state, why, epoch ms)."""
    found = {}
    for key in sorted(key for key in told if key.startswith(VERSIONS)):
        opinion = told[key].get("recomputed")
        if opinion is not None:
            said = VerificationState(opinion["state"]), str(opinion["reason"] or ""), int(opinion["at_ms"])
            found[key.removeprefix(VERSIONS)] = said
    return found


def _opinions(told: Mapping[str, Any], owners: Mapping[str, str]) -> Iterator[Observation]:
    for view, (state, why, _) in reported_states(told).items():
        verdict = _VERDICTS.get(state, Verdict.UNKNOWN)
        words = f"view {view}, computed again from its sources, has other rows: {why}"
        yield Observation(
            labels_of({"view": view, "store": ""}),
            verdict,
            words if verdict is Verdict.BAD else "",
            None,
            labels_of({"owner": owners.get(view, "")}),
            why if verdict is Verdict.UNKNOWN else "",
        )


def named(keys: Sequence[KeyDifference]) -> str:
    """For a line of a log."""
    return "; ".join(f'key "{each.key}": {each.why}' for each in keys[:3])


@dataclass
class CpuBudget:
    """How much of a core may be taken, and how much was: seconds of work are paid with seconds of rest."""

    share: float
    debt_s: float = 0.0
    worked_s: float = field(default=0.0)

    def work(self, cpu_s: float) -> None:
        self.worked_s += cpu_s
        self.debt_s += cpu_s * (1 / self.share - 1)

    def rest(self, most_s: float) -> float:
        """Seconds to rest now, at most ``most_s``; what is left is owed."""
        found = min(self.debt_s, most_s)
        self.debt_s -= found
        return found

"""[core] Observations of the alert rules for mirrors, computed from the values of ``hub mirror status``.

Unknown values give UNKNOWN: a target that does not answer, a partition that no worker reports. Only if this
lasts, it is a separate alert. A mirror that is paused, or held back by its schedule, may stop and be late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from hub.alerts.model.matching import Labels, labels_of
from hub.alerts.model.rules import Observation, RuleChanges, RuleObservations, Verdict
from hub.replication.status.metrics import gap_ages
from hub.topics.tree.tree import TopicSpec

Status = Mapping[str, Any]
Tree = Mapping[str, TopicSpec]
# Used in place of a mirror while no mirror's name is known.
FILE = "mirrors.yaml"
# States of a mirror that intentionally carries nothing.
RESTING = ("paused", "handed over")
RULES = (
    "mirror-trouble",
    "mirror-unknown",
    "mirror-lag",
    "mirror-differs",
    "mirror-gap",
    "mirror-drift",
    "rehearsal-failed",
    "rehearsal-overdue",
)


def observe_mirrors(
    statuses: Sequence[Status], tree: Tree, changes: RuleChanges, error: str | None = None
) -> list[RuleObservations]:
    """Return the observations of the rules of mirrors. ``statuses`` are made by mirror_status.py; a
    target that does not answer has the short form. ``error``: why they are not current: mirrors.yaml cannot
    be read, or no cluster could be read.
    """
    trouble, differs, unknown = [], [], []
    late: list[Observation] = []
    lost: list[Observation] = []
    drift: list[Observation] = []
    failed: list[Observation] = []
    overdue: list[Observation] = []
    for each in statuses:
        trouble.append(_trouble(each, error))
        unknown.append(_unknown(each, error))
        differs.append(_differs(each, error))
        late += _late(each, tree, changes.rule("mirror-lag").limit_ms or 0, error)
        lost += _lost(each, tree, changes.rule("mirror-gap").limit_ms or 0, error)
        drift += _drift(each, error)
        failed += _rehearsal_failed(each, error)
        overdue += _rehearsal_overdue(each, changes.rule("rehearsal-overdue").limit_ms or 0, error)
    if error is not None and not statuses:
        message = f"the state of mirrors is unknown: {error}"
        unknown.append(Observation(_about(FILE), Verdict.BAD, message, detail=error))
    observations = dict(
        zip(RULES, (trouble, unknown, late, differs, lost, drift, failed, overdue), strict=True)
    )
    return [
        RuleObservations(changes.rule(name), tuple(those), whole=error is None)
        for name, those in observations.items()
    ]


def _about(mirror: str, topic: str = "") -> Labels:
    return labels_of({"mirror": mirror, "topic": topic})


def _whose(spec: TopicSpec | None, objective: str = "") -> Labels:
    if spec is None:
        return ()
    return labels_of({"owner": spec.owner, "node": spec.set_by.get(objective, spec.name)})


def _not_known(status: Status, error: str | None) -> str | None:
    """Return why a mirror's state is unknown; None when its target answered."""
    if error is not None:
        return error
    return None if "workers" in status else str(status["reason"])


def _trouble(status: Status, error: str | None) -> Observation:
    name = str(status["mirror"])
    why = _not_known(status, error)
    if why is not None:
        return Observation(_about(name), Verdict.UNKNOWN, detail=why)
    if status["state"] == "unknown":
        return Observation(_about(name), Verdict.UNKNOWN, detail=str(status["reason"]))
    if not status["stands"]:
        return Observation(_about(name), Verdict.GOOD)
    standing = [row for row in status["partitions"] if row["state"] in ("stopped", "trouble")]
    refused: Mapping[str, str] = status["trouble"]
    if standing:
        first = standing[0]
        message = f"{len(standing)} of its partitions are stopped"
        why = f"{first['topic']} partition {first['partition']}: {first['reason']}"
    elif refused:
        topic = min(refused)
        message, why = f"{len(refused)} of its topics are stopped", f"{topic}: {refused[topic]}"
    elif status["state"] == "no worker":
        message, why = "no worker carries it", status["reason"]
    else:
        message, why = "it makes no progress", status["reason"]
    count = float(len(standing) or len(refused) or 1)
    return Observation(_about(name), Verdict.BAD, f"mirror {name}: {message}", count, detail=str(why))


def _unknown(status: Status, error: str | None) -> Observation:
    name = str(status["mirror"])
    why = _not_known(status, error)
    if why is None and status["state"] == "starting":
        why = "a worker has it and has not planned it yet"
    if why is None and status["state"] == "unknown":
        why = str(status["reason"])
    if why is None:
        return Observation(_about(name), Verdict.GOOD)
    return Observation(_about(name), Verdict.BAD, f"the state of mirror {name} is unknown: {why}", detail=why)


def _differs(status: Status, error: str | None) -> Observation:
    name = str(status["mirror"])
    why = _not_known(status, error)
    if why is not None:
        return Observation(_about(name), Verdict.UNKNOWN, detail=why)
    wrong = [row for row in status["partitions"] if (row["verified"] or {}).get("differs_at") is not None]
    if wrong:
        first = wrong[0]
        message = f"mirror {name}: {len(wrong)} of its partitions differ from the source"
        at = f"{first['topic']} partition {first['partition']} at offset {first['verified']['differs_at']}"
        detail = f"{at}: {first['verified']['why']}"
        return Observation(_about(name), Verdict.BAD, message, float(len(wrong)), detail=detail)
    if status["verified_s"] is None:
        return Observation(_about(name), Verdict.UNKNOWN, detail="no comparison yet")
    return Observation(_about(name), Verdict.GOOD)


# ---- lag


def _late(status: Status, tree: Tree, limit_ms: int, error: str | None) -> Iterable[Observation]:
    """Yield one observation for each topic with ``slo.lag``, and one for all others together."""
    name = str(status["mirror"])
    why = _not_known(status, error)
    if why is not None:
        names = status.get("topics_known") or {row["topic"] for row in status.get("partitions", ())}
    else:
        names = {row["topic"] for row in status["partitions"] if row["state"] != "left"}
    promised = {
        topic: spec
        for topic in names
        if (spec := tree.get(topic)) is not None and spec.slo.lag_ms is not None
    }
    if why is None and status["state"] == "paused":
        why = str(status["reason"])
    if why is not None:
        for topic, spec in sorted(promised.items()):
            yield Observation(
                _about(name, topic), Verdict.UNKNOWN, labels=_whose(spec, "slo.lag"), detail=why
            )
        yield Observation(_about(name), Verdict.UNKNOWN, detail=why)
        return
    rows: dict[str, list[Mapping[str, Any]]] = {topic: [] for topic in ("", *promised)}
    for row in status["partitions"]:
        if row["state"] not in ("left", "paused"):
            rows[row["topic"] if row["topic"] in promised else ""].append(row)
    resting = {row["topic"]: row["reason"] for row in status["partitions"] if row["state"] == "paused"}
    for topic, those in sorted(rows.items()):
        topic_spec = promised.get(topic)
        if topic_spec is not None and topic in resting:  # by itself: the mirror is not paused
            labels = _whose(topic_spec, "slo.lag")
            yield Observation(_about(name, topic), Verdict.UNKNOWN, labels=labels, detail=resting[topic])
            continue
        most_ms = limit_ms if topic_spec is None else topic_spec.slo.lag_ms or 0
        yield _lag(status, topic, those, most_ms, _whose(topic_spec, "slo.lag"))


def _lag(
    status: Status, topic: str, rows: Sequence[Mapping[str, Any]], most_ms: int, labels: Labels
) -> Observation:
    """Return the observation of one lag limit. The lag of an unreported partition is a lower bound: it proves
    BAD, never GOOD.
    """
    name = str(status["mirror"])
    about = _about(name, topic)
    known = [row for row in rows if row["lag_s"] is not None]
    worst = max(known, key=lambda row: row["lag_s"], default=None)
    if worst is not None and worst["lag_s"] * 1000 > most_ms:
        least = "at least " if worst["worker"] is None else ""
        behind, most = timedelta(seconds=int(worst["lag_s"])), timedelta(milliseconds=most_ms)
        message = (
            f"mirror {name} is {least}{behind} behind{f' on {topic}' if topic else ''}; at "
            f"most {most} may it be"
        )
        place = f"{worst['topic']} partition {worst['partition']} lacks {worst['lag_records']} offsets"
        detail = "; ".join(each for each in (place, str(worst["reason"]), _at_stake(status, topic)) if each)
        return Observation(about, Verdict.BAD, message, float(worst["lag_s"]), labels, detail)
    for row in rows:
        if row["lag_s"] is None or row["worker"] is None:
            why = f"no worker reports {row['topic']} partition {row['partition']}"
            return Observation(about, Verdict.UNKNOWN, labels=labels, detail=why)
    return Observation(about, Verdict.GOOD, "", None if worst is None else float(worst["lag_s"]), labels)


def _at_stake(status: Status, topic: str) -> str:
    """Describe what a failover would cost the groups now, in one topic if given; "": nothing. Who may see a
    topic's alert is not necessarily allowed to see the readers of others.
    """
    losing: dict[str, int] = {}
    for group in status["groups"]:
        lost = sum(each["rpo_records"] for each in group["places"] if topic in ("", each["topic"]))
        if lost:
            losing[str(group["group"])] = lost
    if not losing:
        return ""
    first, more = min(losing, key=lambda name: (-losing[name], name)), len(losing) - 1
    others = f" and {more} more group{'s' * (more > 1)} something" if more else ""
    return f"a failover now would lose {losing[first]} records to group {first}{others}"


# ---- gaps


def _lost(status: Status, tree: Tree, limit_ms: int, error: str | None) -> Iterable[Observation]:
    """Yield one observation for each topic with permanently lost records: BAD while the gap is new, GOOD
    afterwards.
    """
    name = str(status["mirror"])
    why = _not_known(status, error)
    gaps: Sequence[Mapping[str, Any]] = status.get("gaps", ())
    for topic, age_s in gap_ages(status) if gaps else ():
        about, labels = _about(name, topic), _whose(tree.get(topic))
        if why is not None:
            yield Observation(about, Verdict.UNKNOWN, labels=labels, detail=why)
            continue
        if age_s * 1000 >= limit_ms:
            yield Observation(about, Verdict.GOOD, labels=labels)
            continue
        news = [gap for gap in gaps if gap["topic"] == topic and gap["found_s"] * 1000 < limit_ms]
        first = min(news, key=lambda gap: gap["found_s"])
        ended = all(gap["end"] >= 0 for gap in news)
        count = sum(gap["end"] - gap["first"] for gap in news) if ended else None
        message = f"mirror {name} will never have {'some' if count is None else count} offsets of {topic}"
        place = (
            f"partition {first['partition']} from offset {first['first']} on: "
            f"{_WHY.get(first['reason'], first['reason'])}"
        )
        yield Observation(about, Verdict.BAD, message, None if count is None else float(count), labels, place)


_WHY = {
    "retention": "the source deleted them before they were mirrored",
    "truncated": "the source lost them: its end went back",
    "recreated": "the topic was deleted and made again at the source",
    "skipped": "they could not be taken, or were declared lost",
}


# ---- drift


def _drift(status: Status, error: str | None) -> Iterable[Observation]:
    """Yield whether somebody changed copies of a mirror with `drift: alert` or `revert`."""
    name, why = str(status["mirror"]), _not_known(status, error)
    if why is not None:
        yield Observation(_about(name), Verdict.UNKNOWN, detail=why)
    elif status["drift_policy"] != "keep":
        changed = [row for row in status["drift"] if row["open"]]
        if not changed:
            yield Observation(_about(name), Verdict.GOOD)
            return
        message = f"mirror {name}: {len(changed)} of its copies were changed by hand"
        detail = f"{changed[0]['topic']}: {changed[0]['text']}"
        yield Observation(_about(name), Verdict.BAD, message, float(len(changed)), detail=detail)


# ---- rehearsals


def _scheduled(status: Status) -> Mapping[str, Any] | None:
    """Return the rehearsals of a mirror that has a schedule; None for all others."""
    found: Mapping[str, Any] | None = status.get("rehearsal")
    return found if found is not None and found["schedule"] is not None else None


def _rehearsal_unknown(status: Status) -> Iterable[Observation]:
    """Yield UNKNOWN for a mirror whose target does not answer: whether it has a schedule is not known."""
    if (why := _not_known(status, None)) is not None:
        yield Observation(_about(str(status["mirror"])), Verdict.UNKNOWN, detail=why)


def _rehearsal_failed(status: Status, error: str | None) -> Iterable[Observation]:
    """Yield the verdict of the last complete rehearsal. A mirror without a schedule has none."""
    found, name = _scheduled(status), str(status["mirror"])
    if found is None:
        yield from _rehearsal_unknown(status)
        return
    last = found["last"]
    if error is not None or last is None:
        yield Observation(_about(name), Verdict.UNKNOWN, detail=error or "no rehearsal was complete yet")
    elif last["state"] == "passed":
        yield Observation(_about(name), Verdict.GOOD)
    else:
        message = f"a failover of mirror {name} would fail, as a rehearsal showed"
        yield Observation(_about(name), Verdict.BAD, message, 1.0, detail=str(last["reason"]))


def _rehearsal_overdue(status: Status, limit_ms: int, error: str | None) -> Iterable[Observation]:
    """Yield whether a scheduled rehearsal is missing. None is due while the target serves the source."""
    found, name = _scheduled(status), str(status["mirror"])
    if found is None or found["waits"]:
        yield from _rehearsal_unknown(status)
        return
    since_s = found["overdue_s"]
    if error is not None:
        yield Observation(_about(name), Verdict.UNKNOWN, detail=error)
    elif since_s is None or since_s * 1000 <= limit_ms:
        yield Observation(_about(name), Verdict.GOOD, value=since_s)
    else:
        message = f"mirror {name} was not rehearsed when it was due, {timedelta(seconds=int(since_s))} ago"
        newest = next(iter(found["results"]), None)
        why = (
            "none was ever made" if newest is None else f"the newest is {newest['state']}: {newest['reason']}"
        )
        yield Observation(_about(name), Verdict.BAD, message, since_s, detail=why)

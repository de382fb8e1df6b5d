"""[core] Parse alerts.yaml entry by entry: an error affects its channel, rule or route only; everything else
applies.

An invalid channel keeps its place: its notifications wait until the entry is fixed, and other channels are
notified as usual. A route without any usable channel is reported wherever alerts are shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from hub.alerts.config.alerts_yaml import ALERTS_FILE, AlertsFile
from hub.alerts.model.alert_state import NotificationRoute
from hub.alerts.model.grouping import MOST_NOTIFIED, route_of
from hub.alerts.model.matching import Labels, Matchers, fits, labels_of, matchers_of
from hub.alerts.model.rules import FILE_RULE, AlertRule, Observation, RuleChanges, RuleObservations, Verdict
from hub.errors import ConfigError, did_you_mean
from hub.yaml import load_parts, place

SECTIONS = ("rules", "channels", "routes")

# Place in alerts.yaml: ("channels", "ops"), ("rules", "lag"), ("routes", 0), ("routes", 0, "to", 1);
# ("rules",) is the whole section.
Part = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParsedEntries:
    """Parsed alerts.yaml. ``file`` has the valid entries; ``faults`` maps the place of each invalid entry to
    its error.
    """

    file: AlertsFile = field(default_factory=AlertsFile)
    faults: Mapping[Part, ConfigError] = field(default_factory=dict)

    @property
    def unusable(self) -> dict[str, str]:
        """Unusable channels that are declared or used by a route, by name, with reason and hint."""
        named = {name for route in self.file.routes for name in route.to}
        wrong = {str(part[1]): text_of(error) for part, error in self.faults.items() if _is_channel(part)}
        unknown = {name: f'{ALERTS_FILE} has no channel "{name}" that can be used' for name in sorted(named)}
        return {
            name: reason for name, reason in {**unknown, **wrong}.items() if name not in self.file.channels
        }

    def routes(self) -> tuple[NotificationRoute, ...]:
        """Return the routes in order. The first one sends errors of the files to every declared channel."""
        declared = {*self.file.channels, *(str(part[1]) for part in self.faults if _is_channel(part))}
        if not declared:
            return self.file.as_routes()
        group, every = self.file.group, tuple(sorted(declared))
        own = NotificationRoute(
            matchers_of({"alertname": FILE_RULE}), every, False, (), group.wait, group.repeat
        )
        everything = NotificationRoute((), every, False, tuple(group.by), group.wait, group.repeat)
        return (own, *(self.file.as_routes() if self.file.routes else (everything,)))

    def without_readers(self) -> list[str]:
        """Describe the routes without a usable channel."""
        unusable = self.unusable
        return [
            f"route {_matchers_text(route.matchers)} reaches nobody: {_names(route.channels)} cannot be used"
            for route in self.routes()[1:]
            if unusable.keys() >= set(route.channels)
        ]


def text_of(error: ConfigError) -> str:
    """Format an error and its hint in one line.

    >>> text_of(ConfigError("empty", where="alerts.yaml:1:1", hint="write a channel"))
    'alerts.yaml:1:1: empty (write a channel)'
    """
    return f"{error.message} ({error.hint})" if error.hint else error.message


def read_alerts(path: Path) -> ParsedEntries:
    """Read alerts.yaml entry by entry; return defaults when the file is missing.

    Raises ConfigError for an error outside of ``SECTIONS``.
    """
    if not path.exists():
        return ParsedEntries()
    file, wrong = load_parts(path, AlertsFile, SECTIONS)
    faults: dict[Part, ConfigError] = dict(wrong)
    known = {*file.channels, *(str(part[1]) for part in wrong if _is_channel(part))}
    left_out = {part[1] for part in wrong if part[0] == "routes" and len(part) == 2}
    places = [index for index in range(len(file.routes) + len(left_out)) if index not in left_out]
    for index, route in zip(places, file.routes, strict=True):
        for at, name in enumerate(route.to):
            if name not in known:
                faults[("routes", index, "to", at)] = ConfigError(
                    f'channel "{name}" does not exist',
                    where=place(path, "routes", index, "to", at),
                    hint=did_you_mean(name, known, f"channels: {', '.join(file.channels) or 'none'}"),
                    code="HUB-1105",
                )
    return ParsedEntries(file, faults)


def carried_on(before: AlertsFile, now: ParsedEntries) -> ParsedEntries:
    """Return ``now`` with each invalid entry replaced by its last valid version, if it had one.

    Routes have no names and their order matters, so one invalid route keeps all previous routes.
    """
    parts = now.faults.keys()
    rules = dict(before.rules) if ("rules",) in parts else _former(before.rules, parts, "rules")
    channels = (
        dict(before.channels) if ("channels",) in parts else _former(before.channels, parts, "channels")
    )
    stay = any(part[0] == "routes" and len(part) <= 2 for part in parts) and before.routes
    update = {
        "rules": {**rules, **now.file.rules},
        "channels": {**channels, **now.file.channels},
        "routes": before.routes if stay else now.file.routes,
    }
    return replace(now, file=now.file.model_copy(update=update))


def observe_files(faults: Sequence[tuple[str, str, ConfigError]], changes: RuleChanges) -> RuleObservations:
    """Evaluate the rule ``alerts-file`` for each (file, part of it or "", error)."""
    observations = tuple(
        Observation(
            labels_of({"file": file, "part": part}), Verdict.BAD, error.message, detail=error.hint or ""
        )
        for file, part, error in faults[:MOST_NOTIFIED]
    )
    return RuleObservations(changes.rule(FILE_RULE), observations, absent=Verdict.GOOD)


def reaches_nobody(routes: Sequence[NotificationRoute], labels: Labels, unusable: Mapping[str, str]) -> bool:
    """Return True when every channel that alerts with these labels go to is unusable."""
    channels = {name for route in route_of(routes, labels) for name in route.channels}
    return bool(channels) and channels <= unusable.keys()


def rule_reaches_nobody(
    routes: Sequence[NotificationRoute], rule: AlertRule, unusable: Mapping[str, str]
) -> bool:
    """Return True when every channel that any alert of a rule could go to is unusable.

    A route with matchers on labels other than the rule's name and severity may apply, so its channels count.
    """
    known = {"alertname": rule.name, "severity": str(rule.severity)}
    decided = tuple(sorted(known.items()))
    channels: set[str] = set()
    for route in routes:
        decidable = [matcher for matcher in route.matchers if matcher[0] in known]
        if not fits(tuple(decidable), decided):
            continue
        channels |= set(route.channels)
        if len(decidable) == len(route.matchers) and not route.goes_on:
            break
    return bool(channels) and channels <= unusable.keys()


def _former(before: Mapping[str, T], parts: Collection[Part], section: str) -> dict[str, T]:
    return {name: entry for name, entry in before.items() if (section, name) in parts}


def _is_channel(part: Part) -> bool:
    return part[0] == "channels" and len(part) > 1


def _matchers_text(matchers: Matchers) -> str:
    return ", ".join(f"{name}={'|'.join(values)}" for name, values in matchers) or "of everything"


def _names(channels: Sequence[str]) -> str:
    return f"channel{'s' * (len(channels) > 1)} {', '.join(channels)}"

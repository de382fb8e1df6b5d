"""[core] Report on the state of a hub, as ``hub upgrade --check`` shows it and ``hub up`` obeys it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal

from hub.errors import ConfigError
from hub.formats.deprecations import DeprecatedKey
from hub.formats.stamps import Stamp
from hub.formats.table import ORDER, DurableFormat
from hub.formats.verdicts import Action, judge, refusal


@dataclass(frozen=True, slots=True)
class FoundState:
    """State of one format. ``found`` None: not known, because of ``why``. ``size_bytes`` None: not known."""

    format: DurableFormat
    place: str
    found: Stamp | None
    why: str = ""
    size_bytes: int | None = None

    @property
    def action(self) -> Action | Literal["unknown"]:
        return "unknown" if self.found is None else judge(self.format, self.found)

    @property
    def refusal(self) -> ConfigError | None:
        """Return why this release does not start over the state; None: it does, or nothing is known."""
        if self.found is None or self.action != "refused":
            return None
        return refusal(self.format, self.found, self.place)

    def as_json(self) -> dict[str, Any]:
        refused = self.refusal
        return {
            "format": self.format.name,
            "place": self.place,
            "found": None if self.found is None else self.found.version,
            "written_by": None if self.found is None else self.found.release or None,
            "version": self.format.version,
            "action": self.action,
            "size_bytes": self.size_bytes,
            "detail": self.why or (None if refused is None else f"{refused.message}. {refused.hint}"),
        }


@dataclass(frozen=True, slots=True)
class UnusedFiles:
    """Files of an earlier release that this one does not use. ``why``: why nothing is lost with them."""

    path: str
    size_bytes: int
    why: str

    def __str__(self) -> str:
        return f"{self.path} ({self.size_bytes} bytes): {self.why}"


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """Everything that an upgrade to this release meets."""

    states: Sequence[FoundState]
    deprecations: Sequence[DeprecatedKey] = ()
    unused: Sequence[UnusedFiles] = ()

    @property
    def refused(self) -> list[FoundState]:
        return [each for each in self.states if each.action == "refused"]

    @property
    def rollback(self) -> bool | None:
        """Return whether the release that wrote the state can start again after this one ran; None: not
        known."""
        changed = [each for each in self.states if each.action in ("upgrade", "rebuild")]
        if changed:
            return False
        return None if any(each.found is None for each in self.states) else True

    @property
    def rollback_text(self) -> str:
        changed = sorted({each.format.name for each in self.states if each.action in ("upgrade", "rebuild")})
        if changed:
            return f"not possible without a backup: {', '.join(changed)} would be written in a newer version"
        if self.rollback is None:
            return "unknown: some state could not be looked at"
        return "possible: no format changes"

    def as_json(self) -> dict[str, Any]:
        return {
            "release": version("event-hub"),
            "formats": [each.as_json() for each in self.states],
            "deprecations": [asdict(each) for each in self.deprecations],
            "unused": [asdict(each) for each in self.unused],
            "rollback": {"possible": self.rollback, "detail": self.rollback_text},
            "order": list(ORDER),
        }


def require_no_refusal(states: Iterable[FoundState]) -> None:
    """Raise ConfigError (HUB-1150) that names all state which this release does not read."""
    refusals = [error for each in states if (error := each.refusal) is not None]
    if refusals:
        more = [f"{each.message}" for each in refusals[1:]]
        raise ConfigError("\n".join([refusals[0].message, *more]), hint=refusals[0].hint, code="HUB-1150")

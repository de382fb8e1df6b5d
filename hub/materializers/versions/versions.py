"""[core] A view's versions: their state, and the events that change it (transitions.py).

A version may be built as a recomputation check: ``recompute`` computes the served definition again from the
sources, in parallel, has the store compare all rows, keeps the result (``Versions.recomputed``) and drops the
version. It is never served.

A version that is built to erase a person is served without a comparison, which would show rows of the person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hub.record import Positions

State = Literal["building", "ready", "served", "former"]
Action = Literal["apply", "rollback", "drop", "rewind", "recompute", "erase"]
ACTIONS: tuple[Action, ...] = ("apply", "rollback", "drop", "rewind", "recompute", "erase")
# Reason of a version that is compared and never served.
RECOMPUTE = "recompute"
# Reason of a version without fields of a person who was erased: no version before it is kept.
ERASE = "erase"
PREFIX, WANTED, COMPARED = "versions:", "wanted:", "compared:"


@dataclass(frozen=True, slots=True)
class SwapPolicy:
    """Rules for replacing the served version.

    ``compares``: a store compares the two first. ``rows_within``: the share by which the row count may
    differ; ``same``: columns of which no row may differ. A version that breaks these waits for ``apply``.
    ``recompute_ms``: interval of the recomputation checks; None: only on request.
    """

    manual: bool = False
    compares: bool = True
    keep_ms: int = 86_400_000
    rows_within: float | None = None
    same: tuple[str, ...] = ()
    recompute_ms: int | None = None


@dataclass(frozen=True, slots=True)
class VersionDefinition:
    """Definition of a version. ``text``: the file's text; ``body``: the checked view as JSON.

    ``fingerprint``: equal for two definitions that can continue from each other's state.
    """

    text: str
    body: str
    fingerprint: str
    policy: SwapPolicy = SwapPolicy()


@dataclass(frozen=True, slots=True)
class Version:
    """One computation of the view. ``plain``: it has the view's own name; the others have name and number.

    ``at``: positions of its changelog; a store that covers these has every row. ``lost``: why it cannot
    continue. ``until_ms``: time at which a former one is dropped. ``held``: why a ready one is not swapped in
    automatically.
    """

    number: int
    plain: bool
    state: State
    definition: VersionDefinition
    why: str
    since_ms: int
    at: str | None = None
    comparison: Mapping[str, Any] | None = None
    held: str | None = None
    lost: str | None = None
    until_ms: int | None = None

    @property
    def suffix(self) -> int | None:
        """Its number if that is part of its names."""
        return None if self.plain else self.number


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of a view, by number.

    ``judged``: the file's text that was acted upon last. ``dropping``: suffixes of versions whose topic,
    tables and checkpoint still have to be removed. ``refused``: fingerprints that were rolled back or
    dropped; they are built again only when the file changes to them. ``answered``: the last command carried
    out or refused (``refusal`` then has the reason). ``recomputed``: result of the last recomputation check.
    """

    view: str
    versions: tuple[Version, ...]
    judged: str
    last: int
    dropping: tuple[int | None, ...] = ()
    refused: tuple[str, ...] = ()
    answered: str | None = None
    refusal: str | None = None
    recomputed: Mapping[str, Any] | None = None

    @property
    def served(self) -> Version:
        return next(each for each in self.versions if each.state == "served")

    @property
    def coming(self) -> Version | None:
        """The version that is building or ready."""
        return next((each for each in self.versions if each.state in ("building", "ready")), None)

    @property
    def former(self) -> Version | None:
        return next((each for each in self.versions if each.state == "former"), None)

    def number(self, number: int) -> Version | None:
        return next((each for each in self.versions if each.number == number), None)

    def with_suffix(self, suffix: int | None) -> Version | None:
        return next((each for each in self.versions if each.suffix == suffix), None)


# ---- events


@dataclass(frozen=True, slots=True)
class VersionOpened:
    """The view runs for the first time; its state becomes the first version."""

    number: int
    definition: VersionDefinition


@dataclass(frozen=True, slots=True)
class ComputationKept:
    """The computation stays the same under another text, or is recomputed in place for the reason ``why``."""

    number: int
    definition: VersionDefinition
    why: str | None = None


@dataclass(frozen=True, slots=True)
class DefinitionChanged:
    """The view's definition changed: its file, or the definition of its inputs."""

    definition: VersionDefinition
    why: str
    by_file: bool = True


@dataclass(frozen=True, slots=True)
class VersionLost:
    """A version's state is lost or no longer usable."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class VersionCaughtUp:
    """A version has read what the served one has; ``at``: the positions of its changelog then."""

    number: int
    at: Positions


@dataclass(frozen=True, slots=True)
class VersionCompared:
    """The serving store has all rows of a ready version and reports how they differ from the served ones."""

    number: int
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CommandReceived:
    """A command was received. ``number``: of the version that it concerns, if any."""

    id: str
    action: Action
    number: int | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class VersionRemoved:
    """A dropped version is removed completely."""

    suffix: int | None


Event = (
    VersionOpened
    | ComputationKept
    | DefinitionChanged
    | VersionLost
    | VersionCaughtUp
    | VersionCompared
    | CommandReceived
    | TimePassed
    | VersionRemoved
)

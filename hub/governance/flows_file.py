"""[edge] ``flows.yaml``: where fields with tags may go.

::

    zones:
      eu: ["region:fra", "region:dub", "sink:crm", lake]
    rules:
      pii-stays-in-eu: {tags: [PII], only: [eu], reason: "GDPR, chapter V"}
      no-pii-for-ads:  {tags: [PII], never: ["view:ads_*"]}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator

from hub.errors import did_you_mean
from hub.yaml import is_there, load_model

FLOWS_FILE = "flows.yaml"
KINDS = ("mirror", "region", "sink", "lake", "backup", "view", "topic")
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
_Place = Annotated[
    str,
    StringConstraints(
        pattern=r"^((mirror|region|sink|backup|view|topic):\S{1,249}|lake|backup|[A-Za-z0-9][A-Za-z0-9_-]{0,62})$"
    ),
]


class _Model(BaseModel, extra="forbid", frozen=True):
    """A part of flows.yaml."""


class FlowRule(_Model):
    """A rule for the fields of some tags: ``only``, the places that they may leave to, or ``never``."""

    tags: list[str] = Field(min_length=1, max_length=50, description="fields with one of these tags")
    topics: list[str] = Field(
        ["**"], min_length=1, max_length=100, description="of topics that match one of these patterns"
    )
    only: list[_Place] | None = Field(
        None, max_length=200, description="zones or places that the fields may leave to; `[]`: none"
    )
    never: list[_Place] | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="zones or places that they may not reach",
    )
    unknown: Literal["refuse", "warn"] = Field(
        "refuse", description="a flow that is only possible, because a column or a schema is not known"
    )
    reason: str = Field("", max_length=500, description="why the rule exists; shown in each refusal")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.only is None) == (self.never is None):
            raise ValueError("a rule has either only or never: the places that are allowed, or refused")
        return self


class FlowsFile(_Model):
    """Zones and rules, by name. A zone is a list of places: `region:fra`, `mirror:nyc-*`, `sink:crm`, `lake`,
    `backup`, `view:ads_*`, `topic:marketing.*`."""

    zones: dict[_Name, list[_Place]] = Field(
        default_factory=dict, max_length=200, description="names for several places"
    )
    rules: dict[_Name, FlowRule] = Field(
        default_factory=dict, max_length=200, description="rules, by their name"
    )

    @model_validator(mode="after")
    def _known_zones(self) -> Self:
        for where, places in self._lists():
            for place in places:
                if is_zone(place) and (where.startswith("zone") or place not in self.zones):
                    known = [*self.zones, "lake", "backup"]
                    way_out = did_you_mean(place, known, f"places begin with {', '.join(KINDS)}")
                    raise ValueError(f"{where}: {place} is neither a place nor a zone; {way_out}")
        return self

    def _lists(self) -> Iterator[tuple[str, list[str]]]:
        for name, places in self.zones.items():
            yield f"zone {name}", places
        for name, rule in self.rules.items():
            yield f"rule {name}", rule.only or rule.never or []

    def places(self, named: list[str]) -> tuple[str, ...]:
        """Return places, with those of zones in the place of their names."""
        return tuple(place for each in named for place in (self.zones[each] if is_zone(each) else [each]))


def is_zone(place: str) -> bool:
    """Return whether the text names a zone."""
    return ":" not in place and place not in ("lake", "backup")


def load_flows(project: Path) -> FlowsFile:
    """Load the rules of a project; none without the file. Raises ConfigError with line and column."""
    path = project / FLOWS_FILE
    return load_model(path, FlowsFile) if is_there(path) else FlowsFile()

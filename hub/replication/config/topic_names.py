"""[core] ``rename`` of a mirror: the names of its copies, by a prefix or a template."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, model_validator

from hub.log.topic_names import EQUAL_NAMES, TopicNames
from hub.schema_registry.policy.label_patterns import checked

_TOPIC = "{topic}"
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]*")


class RenameConfig(BaseModel, extra="forbid", frozen=True):
    """Names of the copies: ``prefix`` before the source's name, or a ``template`` such as
    ``{topic}.copy``.
    """

    prefix: str | None = None
    template: str | None = None

    @model_validator(mode="after")
    def _one_that_is_valid(self) -> Self:
        if (self.prefix is None) == (self.template is None):
            raise ValueError("say prefix or template, one of them")
        if self.names.are_equal:
            raise ValueError("rename changes no name: remove it")
        return self

    @property
    def names(self) -> TopicNames:
        """Return the map of names. Raises ValueError with a fix."""
        return names_of_template(self.template if self.template is not None else f"{self.prefix}{_TOPIC}")


def names_of(rename: RenameConfig | None) -> TopicNames:
    """Return the map of names of a mirror."""
    return rename.names if rename is not None else EQUAL_NAMES


def names_of_template(template: str) -> TopicNames:
    """Return the names of a template such as ``nyc.{topic}`` or ``{topic}.copy``. Raises ValueError with a
    fix.
    """
    if template.count(_TOPIC) != 1:
        raise ValueError(f'template "{template[:80]}" must contain {_TOPIC} once, such as "nyc.{_TOPIC}"')
    before, after = template.split(_TOPIC)
    for text in (before, after):
        if not _ALLOWED.fullmatch(text):
            raise ValueError(
                f'template "{template[:80]}": "{text[:80]}" may have letters, digits, ".", "_" and "-"'
            )
    if before.startswith("_"):
        raise ValueError(
            f'template "{template[:80]}": names that begin with "_" belong to Kafka and the hub; use '
            "another character first"
        )
    if ".." in template or before.startswith(".") or after.endswith("."):
        raise ValueError(f'template "{template[:80]}" has an empty label: remove the "." too many')
    return TopicNames(before, after)


def every_copy(names: TopicNames) -> list[str]:
    """Return patterns that distinguish the names of copies from all others: those of topics with one label
    and with more, and names that would be copies of topics with an empty label.
    """
    before, after = names.before, names.after
    found = [f"{before}*{after}", f"{before}*.**.*{after}"]
    if before and not before.endswith("."):
        found += [f"{before}{after}", f"{before}.**.*{after}"]
    if after and not after.startswith("."):
        found += [f"{before}{after}", f"{before}*.**.{after}"]
    return [pattern for pattern in found if not pattern.startswith(".") and not pattern.endswith(".")]


def pattern_at_target(names: TopicNames, pattern: str) -> str:
    """Return the pattern of the copies' names of the topics that a pattern matches. Raises ValueError if
    there is none: ``**`` at an end cannot have a part of a label before or after it.
    """
    labels = pattern.split(".")
    cut_before = labels[0] == "**" and names.before and not names.before.endswith(".")
    cut_after = labels[-1] == "**" and names.after and not names.after.startswith(".")
    if cut_before or cut_after:
        text, end = (names.before, "ends") if cut_before else (names.after, "begins")
        raise ValueError(
            f'pattern "{pattern}" cannot be renamed by "{text}", because "**" is any number of labels: '
            f'use a text that {end} with "."'
        )
    return checked(f"{names.before}{pattern}{names.after}", stars_inside=True)

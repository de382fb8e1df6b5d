"""[core] ``masks:`` of access.yaml, parsed strictly.

::

    masks:
      - {tags: [PII], topics: ["shop.**"], views: ["**"], as: hashed, groups: {support: partial(4)}}
      - {fields: [card.number], topics: [shop.payments], as: refused, roles: {admin: shown}}
      - {rows: "region = user.region", views: [customers], groups: {headquarters: shown}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from hub.access.decide import patterns_of
from hub.access.masking.rules import MaskRule, RowTest
from hub.masking.values import FORMS, SHOWN, Form, Treatment
from hub.schema_registry.policy.label_patterns import checked

MOST_MASKS, MOST_NAMES = 500, 100
_PARTIAL = re.compile(r"partial\(([1-9][0-9]{0,2})\)")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*(\.[A-Za-z_][A-Za-z0-9_\-]*){0,31}")
_TEST = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=\s*(?:user\.([A-Za-z_]\w*)|'([^']*)')\s*")
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_HIDDEN: Treatment = Treatment("nulled")


def treatment(text: object) -> Treatment:
    """Return the treatment of its name. Raises ValueError.

    >>> str(treatment("partial(4)")), str(treatment("hashed"))
    ('partial(4)', 'hashed')
    """
    if isinstance(text, Treatment):
        return text
    if isinstance(text, str) and (found := _PARTIAL.fullmatch(text)):
        return Treatment("partial", int(found[1]))
    plain: Mapping[str, Form] = {each: each for each in FORMS if each != "partial"}
    if not isinstance(text, str) or text not in plain:
        raise ValueError(f'"{str(text)[:60]}" is none of shown, partial(4), hashed, nulled and refused')
    return Treatment(plain[text])


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError(
            f'field "{text[:80]}" must be a name, or names with dots between them: address.street'
        )
    return text


def row_tests(text: str) -> tuple[RowTest, ...]:
    """Return the tests of ``rows:``. Raises ValueError.

    >>> row_tests("region = user.region AND kind = 'shop'")[1]
    RowTest(path=('kind',), claim='', text='shop')
    """
    made = []
    for part in _AND.split(text):
        found = _TEST.fullmatch(part)
        if found is None:
            raise ValueError(
                f"rows \"{text[:100]}\" must be `FIELD = user.CLAIM` or `FIELD = 'text'`, "
                "several with `and` between them"
            )
        made.append(RowTest(tuple(found[1].split(".")), found[2] or "", found[3] or ""))
    return tuple(made)


_Treatment = Annotated[Treatment, BeforeValidator(treatment)]
_Path = Annotated[str, AfterValidator(_path)]
_Pattern = Annotated[str, AfterValidator(checked)]
_Name = Annotated[str, Field(min_length=1, max_length=100)]


class MaskNode(BaseModel, extra="forbid", frozen=True, populate_by_name=True):
    """One rule: ``fields`` and ``tags`` with a treatment, or ``rows``; over topics and views."""

    fields: list[_Path] = Field(default_factory=list, max_length=MOST_NAMES)
    tags: list[_Name] = Field(default_factory=list, max_length=MOST_NAMES)
    rows: str | None = Field(None, max_length=1_000)
    topics: list[_Pattern] = Field(default_factory=list, max_length=MOST_NAMES)
    views: list[_Pattern] = Field(default_factory=list, max_length=MOST_NAMES)
    as_: _Treatment | None = Field(None, alias="as")
    users: dict[_Name, _Treatment] = Field(default_factory=dict, max_length=MOST_NAMES)
    groups: dict[_Name, _Treatment] = Field(default_factory=dict, max_length=MOST_NAMES)
    roles: dict[Literal["write", "operate", "admin"], _Treatment] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not (self.topics or self.views):
            raise ValueError('a mask needs a scope: write topics: ["shop.**"], or views: ["**"], or both')
        if self.rows is None:
            if not (self.fields or self.tags):
                raise ValueError("a mask needs fields, tags or rows")
            if self.as_ is None:
                raise ValueError(
                    "say how everybody else sees these fields: as: hashed, nulled, refused or partial(4)"
                )
            return self
        if self.fields or self.tags or self.as_ is not None:
            raise ValueError("rows stands alone: write another mask for fields and tags")
        for each in (*self.users.values(), *self.groups.values(), *self.roles.values()):
            if each != SHOWN:
                raise ValueError("of a mask of rows, users, groups and roles can only be: shown")
        if self.rows != "all":
            row_tests(self.rows)
        return self

    def rule(self, number: int) -> MaskRule:
        """Return the rule. ``number``: its place in the file, from 1."""
        filtered = self.rows is not None and self.rows != "all"
        return MaskRule(
            number,
            self.as_ or _HIDDEN,
            patterns_of(self.topics),
            patterns_of(self.views),
            tuple(tuple(each.split(".")) for each in self.fields),
            frozenset(self.tags),
            row_tests(self.rows) if filtered and self.rows is not None else (),
            self.rows is not None and not filtered,
            self.users,
            self.groups,
            {str(role): each for role, each in self.roles.items()},
        )


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


ClaimValues = Annotated[
    list[Annotated[str, Field(max_length=200)]], BeforeValidator(_listed), Field(max_length=MOST_NAMES)
]
ClaimNodes = dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,63}$")], ClaimValues]

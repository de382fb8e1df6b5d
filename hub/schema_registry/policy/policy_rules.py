"""[core] The rules of a policy, their order of strictness, and their form in a file.

The values of a rule form a lattice: two values have a least strict one that is as strict as both (``join``),
and a value is as strict as another when joining them changes nothing. A rule that is a map in the file
(``fields``, ``naming``, ``pii``) is inherited key by key: its keys here are ``fields.event_id``,
``naming.records``.

==================  ==============================================  ===========================  ================
rule                value                                           stricter is                  loosest
==================  ==============================================  ===========================  ================
compatibility       a level                                         more of both ways, and all   NONE
formats             schema types                                    fewer                        all three
fields.<path>       types, any of which the field may have          fewer types                  optional
naming.<kind>       regexes, each of which a name must fit          more regexes                 any
owner               required, optional                              required                     optional
doc                 optional, record, every_field                   later in this list           optional
pii.<regex>         tags, each of which a matching field must have  more tags                    optional
freeze              true, false                                     true                         false
registrars          principals and teams                            fewer                        anyone
max_fields          a number                                        smaller                      unlimited
severity.<rule>     warn, block                                     block                        warn
==================  ==============================================  ===========================  ================
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import SchemaError, SchemaValidator, core_schema

from hub.schema_registry.describe import TYPES
from hub.schema_registry.model.levels import Level
from hub.schema_registry.policy.label_patterns import checked

Value = str | int | bool | frozenset[str]

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
Override = Literal["stricter", "any", "none"]
Weight = Literal["warn", "block"]

UNLIMITED = 1 << 31
ANYONE = frozenset({"anyone"})
ABSENT = "absent"  # one of a field's types: the field may be missing
OPTIONAL = frozenset({*TYPES, ABSENT})
PRESETS = {
    "snake_case": "[a-z][a-z0-9]*(_[a-z0-9]+)*",
    "camelCase": "[a-z][a-zA-Z0-9]*",
    "PascalCase": "[A-Z][a-zA-Z0-9]*",
    "UPPER_CASE": "[A-Z][A-Z0-9]*(_[A-Z0-9]+)*",
}
_LONGEST_REGEX = 200
_MOST_NODES = 1_000


# ---- stricter


def _joined_level(left: str, right: str) -> str:
    backward, forward, transitive = (
        any(mark in level for level in (left, right)) for mark in (("BACKWARD", "FORWARD", "TRANSITIVE"))
    )
    full = any(level.startswith("FULL") for level in (left, right))
    way = (
        "FULL" if full or (backward and forward) else "BACKWARD" if backward else "FORWARD" if forward else ""
    )
    return f"{way}{'_TRANSITIVE' * transitive}" if way else "NONE"


def _both(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return left & right


def _all(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return left | right


def _registrars(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return right if left == ANYONE else left if right == ANYONE else left & right


def _later_in(*order: str) -> Callable[[str, str], str]:
    return lambda left, right: max(left, right, key=order.index)


def _listed(word: str, nothing: str = "") -> Callable[[frozenset[str]], str]:
    return lambda value: f" {word} ".join(sorted(value)) or nothing


def _types_text(value: frozenset[str]) -> str:
    if value == OPTIONAL:
        return "optional"
    return "any" if value == frozenset(TYPES) else " or ".join(sorted(value)) or "no type fits all"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule. ``join`` returns the least strict value that is as strict as both; ``text`` formats a value."""

    name: str
    join: Callable[[Any, Any], Any]
    loosest: Value
    text: Callable[[Any], str] = str


_FORMATS: frozenset[str] = frozenset(get_args(SchemaKind))

RULES: Mapping[str, PolicyRule] = {
    rule.name: rule
    for rule in (
        PolicyRule("compatibility", _joined_level, "NONE"),
        PolicyRule("formats", _both, _FORMATS, _listed("or", "no format fits all")),
        PolicyRule("fields", _both, OPTIONAL, _types_text),
        PolicyRule("naming", _all, frozenset(), _listed("and", "any")),
        PolicyRule("owner", _later_in("optional", "required"), "optional"),
        PolicyRule("doc", _later_in("optional", "record", "every_field"), "optional"),
        PolicyRule("pii", _all, frozenset(), _listed("and", "optional")),
        PolicyRule("freeze", lambda left, right: left or right, False, lambda value: str(value).lower()),
        PolicyRule("registrars", _registrars, ANYONE, _listed("or", "no registrar is common to all")),
        PolicyRule(
            "max_fields", min, UNLIMITED, lambda value: "unlimited" if value == UNLIMITED else str(value)
        ),
        PolicyRule("severity", _later_in("warn", "block"), "warn"),
    )
}


def rule_of(key: str) -> PolicyRule:
    """Return the rule of a key: ``fields`` for ``fields.event_id``."""
    return RULES[key.partition(".")[0]]


def as_strict(key: str, value: Value, floor: Value) -> bool:
    """Return True if ``value`` is at least as strict as ``floor``."""
    return bool(rule_of(key).join(value, floor) == value)


def joined(key: str, left: Value, right: Value) -> Value:
    """Return the least strict value that is as strict as both."""
    found: Value = rule_of(key).join(left, right)
    return found


def text_of(key: str, value: Value) -> str:
    return rule_of(key).text(value)


# ---- regexes


def regex(pattern: str) -> str:
    """Return the regex if it is valid and within the limits. Raises ValueError."""
    if len(pattern) > _LONGEST_REGEX:
        raise ValueError(f"a regex of {len(pattern)} characters: {_LONGEST_REGEX} are allowed")
    try:
        _compiled(pattern)  # by itself: parentheses around it must not complete it
        matcher(pattern)
        matcher(pattern, anywhere=True)
    except SchemaError as error:
        reason = " ".join(str(error).partition("error:")[2].split()) or str(error).splitlines()[-1].strip()
        raise ValueError(f'"{pattern}" is not a regex that may be used here: {reason}') from None
    return pattern


@lru_cache(maxsize=4_096)
def matcher(pattern: str, anywhere: bool = False) -> Callable[[str], bool]:
    """Return a test of whether a regex (or preset) matches a whole name; ``anywhere``: a part of it, in any
    case.

    Uses Rust's regexes, through pydantic: names are untrusted, and these take time linear in the name. They
    support neither look-around nor back-references, and their size is bounded. Raises SchemaError.
    """
    expression = PRESETS.get(pattern, pattern)
    whole = f"(?i:{expression})" if anywhere else f"^(?:{expression})$"
    return _compiled(whole)


def _compiled(pattern: str) -> Callable[[str], bool]:
    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    return SchemaValidator(schema).isinstance_python


# ---- the file


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _nothing(*keywords: str) -> Callable[[object], object]:
    return lambda value: [] if isinstance(value, str) and value in keywords else _as_list(value)


def _unlimited(value: object) -> object:
    return UNLIMITED if value == "unlimited" else value


def _for_all(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in get_args(Override):
        raise ValueError(f"say one of {', '.join(get_args(Override))}, or one of them for each rule")
    return OverrideAll(**dict.fromkeys(Overrides.model_fields, value))


def _path(name: str) -> str:
    if not name or len(name) > 255:
        raise ValueError("a field's dotted path has 1 to 255 characters")
    return name


_Regexes = Annotated[list[Annotated[str, AfterValidator(regex)]] | None, BeforeValidator(_nothing("any"))]
FieldWord = Literal[
    "optional", "any", "string", "int", "long", "float", "double", "boolean", "bytes", "timestamp", "date",
    "time",
    "decimal", "uuid", "record", "array", "map", "enum", "union",
]  # fmt: skip


class Naming(BaseModel, extra="forbid", frozen=True):
    """A preset or a regex, or a list of which each must match. ``records`` include Protobuf's messages."""

    records: _Regexes = None
    fields: _Regexes = None
    enums: _Regexes = None
    symbols: _Regexes = None


class Severities(BaseModel, extra="forbid", frozen=True):
    """Severities by rule: a violation blocks the schema, or only warns."""

    formats: Weight | None = None
    fields: Weight | None = None
    naming: Weight | None = None
    owner: Weight | None = None
    doc: Weight | None = None
    pii: Weight | None = None
    freeze: Weight | None = None
    registrars: Weight | None = None
    max_fields: Weight | None = None


class Overrides(BaseModel, extra="forbid", frozen=True):
    """Overrides by rule: how nodes below may change this node's value."""

    compatibility: Override | None = None
    formats: Override | None = None
    fields: Override | None = None
    naming: Override | None = None
    owner: Override | None = None
    doc: Override | None = None
    pii: Override | None = None
    freeze: Override | None = None
    registrars: Override | None = None
    max_fields: Override | None = None


class OverrideAll(Overrides):
    """One override for every rule, including those that the node does not set."""


class NodeModel(BaseModel, extra="forbid", frozen=True):
    """One node of the file. Rules that it does not set are inherited."""

    compatibility: Level | None = None
    formats: Annotated[Annotated[list[SchemaKind], Field(min_length=1)] | None, BeforeValidator(_as_list)] = (
        None
    )
    fields: dict[
        Annotated[str, AfterValidator(_path)],
        Annotated[list[FieldWord], BeforeValidator(_as_list), Field(min_length=1)],
    ] = Field(default_factory=dict)
    naming: Naming = Field(default_factory=Naming)
    owner: Literal["required", "optional"] | None = None
    doc: Literal["optional", "record", "every_field"] | None = None
    pii: dict[
        Annotated[str, AfterValidator(regex)], Annotated[list[str], BeforeValidator(_nothing("optional"))]
    ] = Field(default_factory=dict)
    freeze: bool | None = None
    registrars: Annotated[Annotated[list[str], Field(min_length=1)] | None, BeforeValidator(_as_list)] = None
    max_fields: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_unlimited)] = None
    severity: Severities = Field(default_factory=Severities)
    override: Annotated[Overrides, BeforeValidator(_for_all)] = Field(default_factory=Overrides)

    def declared_values(self) -> dict[str, Value]:
        """Return the node's own values, by key."""
        values: dict[str, Value] = {
            name: value
            for name in ("compatibility", "owner", "doc", "freeze", "max_fields")
            if (value := getattr(self, name)) is not None
        }
        for name in ("formats", "registrars"):
            if (listed := getattr(self, name)) is not None:
                values[name] = frozenset(listed)
        for path, types in self.fields.items():
            values[f"fields.{path}"] = _types(types)
        for kind, patterns in self.naming:
            if patterns is not None:
                values[f"naming.{kind}"] = frozenset(patterns)
        for pattern, tags in self.pii.items():
            values[f"pii.{pattern}"] = frozenset(tags)
        for name, weight in self.severity:
            if weight is not None:
                values[f"severity.{name}"] = weight
        return values


class PolicyFile(BaseModel, extra="forbid", frozen=True):
    """Content of policies.yaml."""

    policies: Annotated[
        dict[Annotated[str, AfterValidator(checked)], NodeModel], Field(max_length=_MOST_NODES)
    ]


def _types(names: Sequence[str]) -> frozenset[str]:
    if "optional" in names:
        return OPTIONAL
    return frozenset(TYPES) if "any" in names else frozenset(names)

"""[core] Select the rules of a rule set that apply, order them, and act on each result.

Order, modes and actions are those of Confluent's serializers (confluent_kafka.schema_registry,
``BaseSerde``):

- WRITE executes domain rules in order, READ in reverse; UPGRADE migration rules in order, DOWNGRADE in
  reverse.
- A rule of mode WRITEREAD or UPDOWN may have a pair of actions, ``"ERROR,NONE"``: the first for WRITE and
  UPGRADE.
- A false condition, a transformation without a result and any error lead to ``onFailure`` (default ERROR),
  everything else to ``onSuccess`` (default NONE). ERROR and DLQ refuse the value; NONE continues with it.

Two things are stricter here: a rule of a type that cannot be executed refuses the value whatever its
``onFailure``, and the record header ``__rule.name`` does not disable a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hub.errors import CallerError

EXECUTABLE = ("CEL", "CEL_FIELD", "JSONATA")
ENCRYPTING = ("ENCRYPT", "ENCRYPT_PAYLOAD")  # executed by writers that have keys
MOST_EXPRESSION = 16_384  # characters of one expression
MOST_RULES = 200

DLQ_TOPIC = "dlq.topic"


class Mode(StrEnum):
    """Operation on a value that selects rules."""

    WRITE = "WRITE"
    READ = "READ"
    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"


_BOTH = {Mode.WRITE: "WRITEREAD", Mode.READ: "WRITEREAD", Mode.UPGRADE: "UPDOWN", Mode.DOWNGRADE: "UPDOWN"}
_FIRST = (Mode.WRITE, Mode.UPGRADE)
_REVERSED = (Mode.READ, Mode.DOWNGRADE)
_MIGRATIONS = (Mode.UPGRADE, Mode.DOWNGRADE)


class RuleRefused(CallerError):
    """A rule refuses a value. ``rule`` is its name; ``dlq_topic`` receives a copy when its action is DLQ."""

    code = "HUB-1214"

    def __init__(
        self,
        message: str,
        rule: str,
        *,
        dlq_topic: str | None = None,
        hint: str | None = None,
        code: str = "HUB-1214",
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.rule = rule
        self.dlq_topic = dlq_topic
        self.details = {"rule": rule}

    def of(self, place: str) -> RuleRefused:
        """Return this refusal with its message prefixed by a part of the record: its key or its value."""
        return RuleRefused(
            f"{place}: {self.message}", self.rule, dlq_topic=self.dlq_topic, hint=self.hint, code=self.code
        )


NOT_EXECUTABLE = "HUB-1215"
OVER_LIMIT = "HUB-1216"


@dataclass(frozen=True, slots=True)
class ContractRule:
    """One rule of a rule set, with Confluent's names."""

    name: str
    kind: str = ""
    mode: str = ""
    type: str = ""
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = False
    doc: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, declared: Any) -> ContractRule:
        """Parse a rule from JSON. Raises RuleRefused for a malformed one."""
        if not isinstance(declared, Mapping):
            raise RuleRefused("a rule is not an object", "", code=NOT_EXECUTABLE)
        texts = {
            name: declared.get(name)
            for name in ("name", "kind", "mode", "type", "expr", "onSuccess", "onFailure", "doc")
        }
        name = str(texts["name"] or "")
        wrong = next(
            (each for each, value in texts.items() if value is not None and not isinstance(value, str)), None
        )
        params = declared.get("params") or {}
        if wrong is None and not isinstance(params, Mapping):
            wrong = "params"
        if wrong is not None:
            raise RuleRefused(
                f'rule "{name}": {wrong} is of another type than it has to be', name, code=NOT_EXECUTABLE
            )
        return cls(
            name,
            texts["kind"] or "",
            texts["mode"] or "",
            (texts["type"] or "").upper(),
            texts["expr"],
            texts["onSuccess"],
            texts["onFailure"],
            declared.get("disabled") is True,
            texts["doc"],
            params,
        )

    def applies(self, mode: Mode) -> bool:
        return not self.disabled and self.mode in (mode.value, _BOTH[mode])

    def action(self, mode: Mode, *, failed: bool) -> str:
        """Return the name of the action to take."""
        name = self.on_failure if failed else self.on_success
        if name and self.mode in _BOTH.values() and "," in name:
            name = name.split(",")[0 if mode in _FIRST else 1]
        return name or ("ERROR" if failed else "NONE")

    @property
    def is_executable(self) -> bool:
        return self.type in EXECUTABLE

    @property
    def encrypts(self) -> bool:
        return self.type in ENCRYPTING

    @property
    def named(self) -> str:
        return f'rule "{self.name}" ({self.type or "no type"})'


@dataclass(frozen=True, slots=True)
class RulePlan:
    """The rules of a mode.

    ``every`` is the list in execution order; ``active`` are the indexes that apply.
    """

    mode: Mode
    every: tuple[ContractRule, ...] = ()
    active: tuple[int, ...] = ()
    source: tuple[Mapping[str, Any], ...] = ()  # ``every`` as JSON

    def __bool__(self) -> bool:
        return bool(self.active)

    @property
    def rules(self) -> tuple[ContractRule, ...]:
        """The rules that apply."""
        return tuple(self.every[index] for index in self.active)


def plan_of(rule_set: Mapping[str, Any] | None, mode: Mode, part: str | None = None) -> RulePlan:
    """Return the plan of a rule set (JSON) for a mode. ``part`` selects another list than the mode's own.

    Raises RuleRefused for a malformed list or rule.
    """
    part = part or ("migrationRules" if mode in _MIGRATIONS else "domainRules")
    if rule_set is not None and not isinstance(rule_set, Mapping):  # another registry may have written it
        raise RuleRefused("the rule set is not an object", part, code=NOT_EXECUTABLE)
    if not rule_set or rule_set.get("enableAt") not in (None, "ALL", "CLIENT"):
        return RulePlan(mode)
    declared = rule_set.get(part) or ()
    if not isinstance(declared, Sequence) or isinstance(declared, str):
        raise RuleRefused(f"{part} of the rule set is not a list", part, code=NOT_EXECUTABLE)
    if len(declared) > MOST_RULES:
        raise RuleRefused(
            f"{part} of the rule set has {len(declared)} rules, {MOST_RULES} are executed",
            part,
            code=OVER_LIMIT,
        )
    source = tuple(reversed(declared)) if mode in _REVERSED else tuple(declared)
    every = tuple(map(ContractRule.of, source))
    return RulePlan(mode, every, tuple(n for n, rule in enumerate(every) if rule.applies(mode)), source)


def must_be_executable(*plans: RulePlan, has_keys: bool = False) -> None:
    """Raise RuleRefused for the first rule that the hub cannot execute. ``has_keys``: it may encrypt."""
    for plan in plans:
        for rule in plan.rules:
            if not rule.is_executable and not (has_keys and rule.encrypts):
                first = (
                    "give it access to the keys: docs/how-to/encrypt-fields.md. Or write"
                    if rule.encrypts
                    else f"the hub executes {', '.join((*EXECUTABLE, *ENCRYPTING))}. Write"
                )
                raise RuleRefused(
                    f"{rule.named} cannot be executed here",
                    rule.name,
                    hint=f"{first} with a serializer that executes {rule.type or 'it'}, and send its bytes "
                    "with type BINARY",
                    code=NOT_EXECUTABLE,
                )
            if rule.expr is not None and len(rule.expr) > MOST_EXPRESSION:
                raise RuleRefused(
                    f"{rule.named} has {len(rule.expr)} characters, {MOST_EXPRESSION} are executed",
                    rule.name,
                    code=OVER_LIMIT,
                )


Execute = Callable[[int, Any], Any]
"""Give the result of the rule at an index of ``RulePlan.every`` for a value. May raise any Exception."""


class RuleAborted(Exception):
    """Failure that Confluent's serializers raise regardless of all actions."""


def run(plan: RulePlan, value: Any, execute: Execute) -> Any:
    """Apply the rules to a value and return the result.

    Raises RuleRefused naming the rule that refuses it.
    """
    for index in plan.active:
        rule = plan.every[index]
        try:
            result = execute(index, value)
        except RuleAborted as error:
            raise _refused(plan.mode, rule, "ERROR", str(error)) from None
        except (RecursionError, MemoryError) as error:
            raise over_limit(rule.named, rule.name, f"it needs too much ({type(error).__name__})") from None
        except Exception as error:  # noqa: BLE001 - the rule failed, whatever its expression raised
            _follow(plan.mode, rule, failed=True, why=str(error) or type(error).__name__)
            continue
        if rule.kind == "CONDITION" and not result:
            _follow(plan.mode, rule, failed=True, why=condition_text(rule))
            continue
        if rule.kind == "TRANSFORM":
            value = result
        _follow(plan.mode, rule, failed=value is None, why="it gives nothing")
    return value


def condition_text(rule: ContractRule) -> str:
    """Return Confluent's message for a condition that is false."""
    return rule.doc or (f"Rule expr failed: {rule.expr}" if rule.expr else f"Rule failed: {rule.name}")


def over_limit(named: str, name: str, why: str) -> RuleRefused:
    """Return a refusal that ignores ``onFailure``, because the rule's result is unknown."""
    return RuleRefused(f"{named}: {why}", name, hint="make its expression cheaper", code=OVER_LIMIT)


def _follow(mode: Mode, rule: ContractRule, *, failed: bool, why: str) -> None:
    """Take the rule's action. An unknown action is a failure of the rule."""
    action = rule.action(mode, failed=failed)
    if action == "NONE":
        return None
    if action in ("ERROR", "DLQ"):
        raise _refused(mode, rule, action, why if failed else "onSuccess refuses what passes")
    if not failed:
        return _follow(mode, rule, failed=True, why=f"its action {action} is not known")
    raise _refused(mode, rule, "ERROR", f"{why}; and its action {action} is not known")


def _refused(mode: Mode, rule: ContractRule, action: str, why: str) -> RuleRefused:
    return RuleRefused(
        f"{rule.named} refuses the value: {why[:500]}",
        rule.name,
        dlq_topic=rule.params.get(DLQ_TOPIC, "") if action == "DLQ" else None,
    )


def judged_by(plan: RulePlan) -> tuple[int, ...]:
    """Return the conditions of a WRITE plan that a stored value must still meet.

    Those are the conditions after the last transformation whose failure refuses the value. The log no longer
    holds the values that earlier conditions were checked on.
    """
    found: list[int] = []
    for index in plan.active:
        rule = plan.every[index]
        if rule.kind == "TRANSFORM":
            found.clear()
        elif (
            rule.is_executable and rule.kind == "CONDITION" and rule.action(plan.mode, failed=True) != "NONE"
        ):
            found.append(index)
    return tuple(found)


def executable_part(plan: RulePlan) -> RulePlan:
    """Return the plan up to its first rule that cannot be executed; the value after it is unknown."""
    cut = next(
        (n for n, index in enumerate(plan.active) if not plan.every[index].is_executable), len(plan.active)
    )
    return RulePlan(plan.mode, plan.every, plan.active[:cut], plan.source)

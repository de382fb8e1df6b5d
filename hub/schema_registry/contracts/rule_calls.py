"""[core] One use of a schema's rules: who hears of each rule, and where data keys come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hub.schema_registry.contracts.rules import RuleAborted
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion

AskKey = Callable[[KeyQuestion], DataKey]


def _nobody(_rule: str) -> None:
    pass


def _no_key(_question: KeyQuestion) -> DataKey:
    raise RuleAborted("there are no keys here")


@dataclass(frozen=True, slots=True)
class RuleCall:
    """One use of a contract. ``began`` receives the name of each rule before it is executed; ``ask`` returns
    a data key of ``subject``.
    """

    began: Callable[[str], None] = _nobody
    subject: str = ""
    ask: AskKey = _no_key


NO_KEYS = RuleCall()

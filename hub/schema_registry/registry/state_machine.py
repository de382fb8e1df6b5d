"""[core] The registry as a state machine: ``decide`` answers a command with facts, ``apply`` alone changes
state.

One class in layers, each in a file with its rules: the state and ``apply`` (``state.py``), queries
(``queries.py``), decisions (``decide_register.py``, ``decide_delete.py``, ``decide_settings.py``). Commands
and refusals have files of their own, and are exported here too.
"""

from __future__ import annotations

from dataclasses import dataclass

from hub.schema_registry.model.data_contract import InvalidRules
from hub.schema_registry.registry.commands import (
    Command,
    CommandDecision,
    DeleteContext,
    DeleteSubject,
    DeleteVersion,
    RegisterSchema,
    SetLevel,
    SetMode,
)
from hub.schema_registry.registry.decide_delete import delete_context, delete_subject, delete_version
from hub.schema_registry.registry.decide_register import register
from hub.schema_registry.registry.decide_settings import set_level, set_mode
from hub.schema_registry.registry.errors import (
    RequestRefused,
    refused_schema,
    schema_not_found,
    subject_not_found,
    valid_subject,
    version_not_found,
    version_number,
)
from hub.schema_registry.registry.queries import RegistryQueries
from hub.schema_registry.registry.settings import (
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    SETTINGS,
    checked_settings,
    settings_json,
)
from hub.schema_registry.registry.state import MOST_REPORTS, RegistryContext, guid_of, identity


@dataclass
class Registry(RegistryQueries):
    """The registry: the state in memory, its queries, and its decisions."""

    def decide(self, command: Command) -> CommandDecision:
        """Return the facts that execute a command, and its answer. Pure; the state must be caught up.

        Raises RequestRefused.
        """
        try:
            return self._decide(command)
        except InvalidRules as error:
            raise RequestRefused(422, 42210, f"Invalid rule set: {error.message}") from None

    def _decide(self, command: Command) -> CommandDecision:
        match command:
            case RegisterSchema():
                return register(self, command)
            case DeleteVersion():
                return delete_version(self, command)
            case DeleteSubject():
                return delete_subject(self, command)
            case SetLevel():
                return set_level(self, command)
            case SetMode():
                return set_mode(self, command)
            case DeleteContext():
                return delete_context(self, command)


__all__ = [
    "DEFAULT_LEVEL",
    "DEFAULT_MODE",
    "MOST_REPORTS",
    "SETTINGS",
    "Command",
    "CommandDecision",
    "DeleteContext",
    "DeleteSubject",
    "DeleteVersion",
    "RegisterSchema",
    "Registry",
    "RegistryContext",
    "RequestRefused",
    "SetLevel",
    "SetMode",
    "checked_settings",
    "guid_of",
    "identity",
    "refused_schema",
    "schema_not_found",
    "settings_json",
    "subject_not_found",
    "valid_subject",
    "version_not_found",
    "version_number",
]

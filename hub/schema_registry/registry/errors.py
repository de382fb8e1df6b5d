"""[core] Refusals of the registry, with Confluent's status and error_code, which clients depend on.

Checks of names in a path or a body (a subject, a version, a schema) raise them too.
"""

from __future__ import annotations

import re

from hub.errors import CallerError
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import HIGHEST_ID

# Subject, version, schema; a subject's own compatibility level and mode.
_MISSING = (40401, 40402, 40403, 40408, 40409)
_NUMBER = re.compile(r"[+-]?\d{1,20}", re.ASCII)


class RequestRefused(CallerError):
    """A request that Confluent's registry answers with (status, error_code)."""

    def __init__(self, status: int, error_code: int, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, code=f"HUB-12{error_code % 100:02d}")
        self.status = status
        self.error_code = error_code

    @property
    def is_missing(self) -> bool:
        """True if something does not exist here. Another node may have written it a moment ago."""
        return self.error_code in _MISSING


def subject_not_found(subject: str) -> RequestRefused:
    return RequestRefused(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RequestRefused:
    return RequestRefused(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> RequestRefused:
    return RequestRefused(
        404, 40403, f"Schema {schema_id} not found" if schema_id is not None else "Schema not found"
    )


def invalid_schema(message: str, *, too_large: bool = False) -> RequestRefused:
    return RequestRefused(422, 42209 if too_large else 42201, message)


def not_permitted(message: str) -> RequestRefused:
    return RequestRefused(422, 42205, message)


def refused_schema(error: InvalidSchema) -> RequestRefused:
    """Return 42209 for a schema that is too large, 42201 for any other."""
    message = (
        error.message if error.message.startswith("Invalid schema") else f"Invalid schema: {error.message}"
    )
    return invalid_schema(message, too_large=error.code == "HUB-1209")


def version_number(version: int | str) -> int:
    """Parse the version in a path: "latest" is -1. Raises RequestRefused 42202."""
    if version == "latest":
        return -1
    number = int(version) if _NUMBER.fullmatch(str(version)) else 0
    if (number < 1 and number != -1) or number > HIGHEST_ID:
        raise RequestRefused(
            422,
            42202,
            f"The specified version '{str(version)[:80]}' is not a valid version id. "
            "Allowed values are between "
            '[1, 2^31-1] and the string "latest"',
        )
    return number


def valid_subject(subject: str) -> str:
    """Return the normalized subject. Raises RequestRefused 42208."""
    try:
        names.check(subject)
    except names.InvalidSubject as error:
        raise RequestRefused(422, 42208, error.message) from None
    return names.normal(subject)


def valid_place(subject: str | None) -> str | None:
    """Return the key under which settings of a subject, a context or the registry are stored.

    Raises RequestRefused 42208.
    """
    if subject is not None and subject != names.ABOVE_CONTEXTS:
        try:
            names.check(subject, may_be_context=True)
        except names.InvalidSubject as error:
            raise RequestRefused(422, 42208, error.message) from None
    return names.place(subject)

"""[core] Required action of each registry path: on its subject, on the hub, or none for filtered lists.

Patterns as in ``routes.Api``. A method of a path that is not listed here is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from hub.caller import HUB, Action, Kind, Resource
from hub.schema_registry.model import subject_names as names


class On(StrEnum):
    """Resource of a required action.

    ``listed``: open to every caller; entries that the caller may not see are left out. ``schema``: the schema
    of an id, for callers who may see a subject that has it.
    """

    subject = "subject"
    place = "place"
    hub = "hub"
    listed = "listed"
    schema = "schema"


_LISTED = (Action.describe, On.listed)
_DESCRIBED = (Action.describe, On.subject)
_SCHEMA = (Action.describe, On.schema)
_WRITTEN = (Action.write, On.subject)
_GONE = (Action.admin, On.subject)
_PLACE = {
    "GET": (Action.describe, On.place),
    "PUT": (Action.admin, On.place),
    "DELETE": (Action.admin, On.place),
}
_ALL = {"GET": _LISTED, "PUT": (Action.admin, On.hub), "DELETE": (Action.admin, On.hub)}

RULES: Mapping[str, Mapping[str, tuple[Action, On]]] = {
    "subjects": {"GET": _LISTED},
    "subjects//versions": {"GET": _DESCRIBED, "POST": _WRITTEN},
    "subjects//metadata": {"GET": _DESCRIBED},
    "subjects/": {"POST": _DESCRIBED, "DELETE": _GONE},
    "subjects//versions/": {"GET": _DESCRIBED, "DELETE": _GONE},
    "subjects//versions//schema": {"GET": _DESCRIBED},
    "subjects//versions//referencedby": {"GET": _DESCRIBED},
    "subjects//versions//tags": {"POST": _WRITTEN},
    "schemas": {"GET": _LISTED},
    "schemas/types": {"GET": _LISTED},
    "schemas/ids/": {"GET": _SCHEMA},
    "schemas/ids//schema": {"GET": _SCHEMA},
    "schemas/ids//subjects": {"GET": _SCHEMA},
    "schemas/ids//versions": {"GET": _SCHEMA},
    "schemas/guids/": {"GET": _SCHEMA},
    "schemas/guids//ids": {"GET": _SCHEMA},
    "config": _ALL,
    "config/": _PLACE,
    "mode": _ALL,
    "mode/": _PLACE,
    "compatibility/subjects//versions": {"POST": _DESCRIBED},
    "compatibility/subjects//versions/": {"POST": _DESCRIBED},
    "contexts": {"GET": _LISTED},
    "contexts/": {"DELETE": (Action.admin, On.hub)},
    "v1/metadata/id": {"GET": _LISTED},
    "v1/metadata/version": {"GET": _LISTED},
    "v1/metadata/deployment": {"GET": _LISTED},
}


def place_of(subject: str) -> Resource:
    """Return the resource that grants refer to: the subject, or the hub for a context."""
    name = names.split(names.normal(subject))[1]
    return Resource(Kind.subject, subject) if name else HUB

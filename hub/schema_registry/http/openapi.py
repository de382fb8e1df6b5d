"""[core] The registry's routes as OpenAPI 3.1: one row of ``OPERATIONS`` for each row of the route table.

The routes are served without a framework that could derive a description, so it is written here. One test
compares this table with the one in ``routes.py``; another runs the description against the registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hub.schema_registry.compat.compatibility import LEVELS, POLICIES
from hub.schema_registry.formats.inline_tags import KINDS as ENTITY_KINDS
from hub.schema_registry.formats.known import FORMATTED, TYPES_IN_ORDER
from hub.schema_registry.model.data_contract import KINDS, LISTS
from hub.schema_registry.model.data_contract import MODES as RULE_MODES
from hub.schema_registry.model.facts import HIGHEST_ID, MODES
from hub.schema_registry.model.subject_names import LONGEST

TAG: Final = "schema registry"
MEDIA_TYPES: Final = ("application/vnd.schemaregistry.v1+json", "application/json")

Json = dict[str, Any]
_REGISTERS: Final = ("Request", "TagRequest")  # bodies of requests that write

# Meaning of each error_code; its first three digits are the status.
MEANINGS: Final[Mapping[int, str]] = {
    400: "the path, the query or the body cannot be read",
    404: "no such path, or no such number",
    413: "the body is too large",
    415: "the body is of no type that is read",
    422: "a field or a parameter is not of its type",
    500: "the registry's own fault",
    40401: "no such subject",
    40402: "no such version",
    40403: "no such schema",
    40404: "the subject is soft-deleted",
    40405: "the subject is not soft-deleted yet",
    40406: "the version is soft-deleted",
    40407: "the version is not soft-deleted yet",
    40408: "the subject has no settings of its own",
    40409: "the subject has no mode of its own",
    40901: "incompatible with an earlier version",
    42201: "an invalid schema, or one that breaks the rules of the tree",
    42202: "an invalid version",
    42203: "an invalid compatibility level or policy",
    42204: "an invalid mode",
    42205: "the mode does not permit it",
    42206: "other schemas reference it",
    42208: "an invalid subject",
    42209: "too large to be stored",
    42210: "an invalid rule set",
    42211: "the context is not empty",
    50001: "the log cannot be read",
    50002: "the log took no answer in time",
}


@dataclass(frozen=True, slots=True)
class RouteOperation:
    """One method of one path. Several words in a field are separated by spaces.

    ``answer``: the schema of a 200, "" for a body that is not our JSON, None for a 204. ``errors``: codes
    besides those implied by the path and the body. ``sent``: an example of the body. ``tagged``: may also
    answer 304.
    """

    method: str
    path: str
    summary: str
    query: str = ""
    errors: str = ""
    body: str = ""
    answer: Json | str | None = ""
    sent: Json | None = None
    example: Any = None
    tagged: bool = False

    @property
    def codes(self) -> list[int]:
        """Every error_code of the operation, ascending."""
        codes = {400, 500, 50001, *map(int, self.errors.split())}
        if "{" in self.path:
            codes.add(404)
        if self.body:
            codes |= {413, 415, 422}
        if self.method != "GET":
            codes |= {50002, 42209}
        if "limit" in self.query.split():
            codes.add(422)
        return sorted(codes, key=str)


def _listed(item: Json) -> Json:
    return {"type": "array", "items": item}


def _number(lowest: int = 0) -> Json:
    return {"type": "integer", "minimum": lowest, "maximum": HIGHEST_ID}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/Registry{name}"}


_TEXT: Final[Json] = {"type": "string"}
_FLAG: Final[Json] = {"type": "boolean"}
_NUMBERS: Final = _listed(_number(1))
_NAMES: Final = _listed(_TEXT)

_TEXT_OF_ORDER: Final = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
_GUID: Final = "7d7c1b0c-95d5-3f6e-9a57-6a5a3a3b1c0e"
_ORDER: Final[Json] = {"id": 1, "version": 1, "guid": _GUID, "schema": _TEXT_OF_ORDER}
_VERSION: Final[Json] = {"subject": "orders-value", **_ORDER}
_SENT: Final[Json] = {"schemaType": "AVRO", "schema": _TEXT_OF_ORDER}

_TAGGED: Final = [{"schemaEntity": {"entityPath": "Order.id", "entityType": "sr_field"}, "tags": ["pii"]}]

_PAGE: Final = "offset limit"
_SUBJECT: Final = "/subjects/{subject}"
_AT: Final = "/subjects/{subject}/versions/{version}"
_ID: Final = "/schemas/ids/{id}"
_COMPATIBLE: Final = "/compatibility/subjects/{subject}/versions"


def _settings(path: str, of: str, wanted: str = "", missing: str = "") -> tuple[RouteOperation, ...]:
    return (
        RouteOperation(
            "GET",
            path,
            f"The settings of {of}",
            wanted,
            missing,
            answer=_ref("Settings"),
            example={"compatibilityLevel": "BACKWARD"},
        ),
        RouteOperation(
            "PUT",
            path,
            f"Change settings of {of}; null takes one back",
            "",
            "42203 42205 42208 42210",
            "SettingsChange",
            _ref("SettingsChange"),
            {"compatibility": "FULL"},
            {"compatibility": "FULL"},
        ),
        RouteOperation(
            "DELETE",
            path,
            f"Take back all settings of {of}",
            "",
            f"{missing and '40401'} 42205 42208",
            answer=_ref("Settings"),
        ),
    )


def _mode(path: str, of: str, wanted: str = "", missing: str = "") -> tuple[RouteOperation, ...]:
    answer, example = _ref("Mode"), {"mode": "READWRITE"}
    return (
        RouteOperation("GET", path, f"The mode of {of}", wanted, missing, answer=answer, example=example),
        RouteOperation(
            "PUT",
            path,
            f"Set the mode of {of}",
            "force recursive",
            "42204 42205 42206 42208",
            "ModeChange",
            answer,
            example,
            example,
        ),
        RouteOperation(
            "DELETE",
            path,
            f"Take back the mode of {of}",
            "recursive",
            f"{missing and '40401'} 42208",
            answer=answer,
        ),
    )


OPERATIONS: Final[tuple[RouteOperation, ...]] = (
    RouteOperation(
        "GET",
        "/subjects",
        "The names of all subjects",
        f"subjectPrefix deleted deletedOnly {_PAGE}",
        answer=_NAMES,
        example=["orders-value"],
    ),
    RouteOperation(
        "POST",
        _SUBJECT,
        "Look up which version of a subject a schema is",
        "deleted normalize format",
        "40401 40403 42201 42210",
        "Request",
        _ref("Version"),
        _SENT,
        _VERSION,
    ),
    RouteOperation(
        "DELETE",
        _SUBJECT,
        "Delete all versions of a subject: softly, then for ever",
        "permanent",
        "40401 40404 40405 42205 42206",
        answer=_NUMBERS,
        example=[1],
    ),
    RouteOperation(
        "GET",
        f"{_SUBJECT}/versions",
        "The version numbers of a subject",
        f"deleted deletedOnly deletedAsNegative {_PAGE}",
        "40401",
        answer=_listed({"type": "integer"}),
        example=[1],
    ),
    RouteOperation(
        "POST",
        f"{_SUBJECT}/versions",
        "Register a schema as the next version of a subject",
        "normalize format",
        "40901 42201 42202 42205 42208 42210",
        "Request",
        _ref("Registered"),
        _SENT,
        _ORDER,
    ),
    RouteOperation(
        "GET",
        f"{_SUBJECT}/metadata",
        "The newest version with these metadata properties",
        "key value deleted format",
        "40401 40403 42201",
        answer=_ref("Version"),
    ),
    RouteOperation(
        "GET",
        _AT,
        "One version of a subject",
        "deleted format",
        "40401 40402 42201 42202",
        answer=_ref("Version"),
        example=_VERSION,
        tagged=True,
    ),
    RouteOperation(
        "DELETE",
        _AT,
        "Delete one version: softly, then for ever",
        "permanent",
        "40401 40402 40406 40407 42202 42205 42206",
        answer=_number(1),
        example=1,
    ),
    RouteOperation(
        "GET",
        f"{_AT}/schema",
        "Only the text of a version's schema",
        "deleted format",
        "40401 40402 42201 42202",
    ),
    RouteOperation(
        "GET",
        f"{_AT}/referencedby",
        "The ids of the schemas that reference a version",
        f"deleted {_PAGE}",
        "40401 40402 42202",
        answer=_NUMBERS,
    ),
    RouteOperation(
        "POST",
        f"{_AT}/tags",
        "Register a version like this one, with other tags or rules",
        "format",
        "40401 40402 40901 42201 42202 42205 42208 42210",
        "TagRequest",
        _ref("Registered"),
        {"tagsToAdd": _TAGGED},
        _ORDER,
    ),
    RouteOperation(
        "GET",
        "/schemas",
        "All versions of all subjects",
        f"subjectPrefix deleted latestOnly aliases ruleType {_PAGE}",
        answer=_listed(_ref("Listed")),
        example=[_VERSION],
    ),
    RouteOperation(
        "GET",
        "/schemas/types",
        "The schema types that are known",
        answer=_NAMES,
        example=list(TYPES_IN_ORDER),
    ),
    RouteOperation(
        "GET",
        _ID,
        "The schema of an id",
        "subject format fetchMaxId",
        "40403 42201",
        answer=_ref("Schema"),
        example={"guid": _GUID, "schema": _TEXT_OF_ORDER},
        tagged=True,
    ),
    RouteOperation(
        "GET", f"{_ID}/schema", "Only the text of an id's schema", "subject format", "40403 42201"
    ),
    RouteOperation(
        "GET",
        f"{_ID}/subjects",
        "The subjects that use an id",
        f"subject deleted {_PAGE}",
        "40403",
        answer=_NAMES,
        example=["orders-value"],
    ),
    RouteOperation(
        "GET",
        f"{_ID}/versions",
        "The versions that have an id",
        f"subject deleted {_PAGE}",
        "40403",
        answer=_listed(_ref("Place")),
        example=[{"subject": "orders-value", "version": 1}],
    ),
    RouteOperation(
        "GET",
        "/schemas/guids/{guid}",
        "The schema of a GUID",
        "format",
        "40403 42201",
        answer=_ref("Schema"),
        tagged=True,
    ),
    RouteOperation(
        "GET",
        "/schemas/guids/{guid}/ids",
        "The ids of a GUID in each context",
        "",
        "40403",
        answer=_listed(_ref("IdInContext")),
        example=[{"context": ".", "id": 1}],
    ),
    *_settings("/config", "the default context"),
    *_settings("/config/{subject}", "a subject or context", "defaultToGlobal", "40408"),
    *_mode("/mode", "the default context"),
    *_mode("/mode/{subject}", "a subject or context", "defaultToGlobal", "40409"),
    RouteOperation(
        "POST",
        _COMPATIBLE,
        "Whether a schema may follow the versions that the level looks at",
        "verbose normalize",
        "42201 42210",
        "Request",
        _ref("Compatibility"),
        _SENT,
        {"is_compatible": True},
    ),
    RouteOperation(
        "POST",
        f"{_COMPATIBLE}/{{version}}",
        "Whether a schema may follow one version",
        "verbose normalize",
        "40402 42201 42202 42210",
        "Request",
        _ref("Compatibility"),
        _SENT,
        {"is_compatible": True},
    ),
    RouteOperation(
        "GET",
        "/contexts",
        "The contexts, the default one first",
        f"contextPrefix {_PAGE}",
        answer=_NAMES,
        example=["."],
    ),
    RouteOperation("DELETE", "/contexts/{context}", "Delete an empty context", "", "42211", answer=None),
    RouteOperation("GET", "/v1/metadata/id", "The cluster's id", answer=_ref("Cluster")),
    RouteOperation("GET", "/v1/metadata/version", "The server's version", answer=_ref("ServerVersion")),
    RouteOperation(
        "GET", "/v1/metadata/deployment", "The deployment's attributes", answer=_ref("Deployment")
    ),
)

# (schema, description, example)
_IN_PATH: Final[Mapping[str, tuple[Json, str, Any]]] = {
    "subject": (
        {**_TEXT, "minLength": 1, "maxLength": LONGEST},
        "A subject; of another context `:.ctx:name`. A `/` in it is escaped.",
        "orders-value",
    ),
    "version": ({"anyOf": [_number(1), {"enum": ["latest", "-1"]}]}, "A number, or the latest.", "latest"),
    "id": (_number(), "A schema's id within its context.", 1),
    "guid": ({**_TEXT, "format": "uuid"}, "A schema's GUID.", _GUID),
    "context": ({**_TEXT, "minLength": 1, "maxLength": LONGEST}, "A context: `ctx` or `.ctx`.", "ctx"),
}
_IN_QUERY: Final[Mapping[str, tuple[Json, str]]] = {
    "deleted": (_FLAG, "Soft-deleted ones too."),
    "deletedOnly": (_FLAG, "Only soft-deleted ones."),
    "deletedAsNegative": (_FLAG, "Soft-deleted ones too, their numbers below zero."),
    "latestOnly": (_FLAG, "Only the latest version of each subject."),
    "permanent": (_FLAG, "For ever; only what is soft-deleted already."),
    "normalize": (_FLAG, "Take schemas that mean the same as one."),
    "verbose": (_FLAG, "Give the reasons."),
    "fetchMaxId": (_FLAG, "Give the highest id too."),
    "defaultToGlobal": (_FLAG, "What holds, also when it is set further up."),
    "force": (_FLAG, "Also when there are schemas already."),
    "recursive": (_FLAG, "Take back the modes of the subjects below."),
    "format": (
        {"enum": ["default", *FORMATTED]},
        "Protobuf: `serialized` (a descriptor in base64), `ignore_extensions`. Avro: `resolved` (references written out).",
    ),
    "aliases": (_FLAG, "Aliases too, and the subjects that they stand for."),
    "ruleType": (_TEXT, "Only versions with a rule of this type."),
    "subject": (_TEXT, "The use that is meant, or (`:.ctx:`) the context."),
    "subjectPrefix": (_listed(_TEXT), "How subjects begin; `:*:` for every context."),
    "contextPrefix": (_TEXT, "How contexts begin."),
    "key": (_listed(_TEXT), "Names of properties."),
    "value": (_listed(_TEXT), "Their values, in the same order."),
    "offset": ({"type": "integer", "minimum": 0}, "How many to leave out."),
    "limit": ({"type": "integer"}, "How many to answer at most; 0 or less: all."),
}
_IN_HEADERS: Final[Mapping[str, str]] = {
    "Hub-Principal": "Who registers, as the proxy before the hub knows.",
    "Hub-Teams": "The teams of who registers, with commas.",
}
_OF_WRITES: Final[Json] = {
    "Hub-Offset": {"description": "The write's offset in the log.", "schema": _number()},
    "Hub-Position": {"description": "The token to read one's own write with.", "schema": _TEXT},
    "Hub-Warnings": {
        "description": "Of a registration: the rules that only warn, as a JSON list.",
        "schema": _TEXT,
    },
}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: str, **properties: Json) -> Json:
    return {"type": "object", "required": required.split(), "properties": properties}


def _components() -> Json:
    place: Json = {"subject": _TEXT, "version": _number(1)}
    rule = _object(
        "name",
        name={**_TEXT, "minLength": 1},
        kind=_or_null({"enum": [*KINDS]}),
        mode=_or_null({"enum": [*RULE_MODES]}),
        **dict.fromkeys(("doc", "type", "expr", "onSuccess", "onFailure"), _or_null(_TEXT)),
        tags=_or_null(_NAMES),
        params=_or_null({"type": "object", "additionalProperties": _TEXT}),
        disabled=_or_null(_FLAG),
    )
    about: Json = {
        "schemaType": {"enum": [*TYPES_IN_ORDER]},
        "references": _listed(_ref("Reference")),
        "metadata": _ref("Metadata"),
        "ruleSet": _ref("RuleSet"),
    }
    stored: Json = {"guid": {**_TEXT, "format": "uuid"}, **about, "schema": _TEXT}
    every_setting: Json = {
        **dict.fromkeys(("alias", "compatibilityGroup"), _TEXT),
        **dict.fromkeys(("normalize", "validateFields", "validateNames", "validateRules"), _FLAG),
        "compatibilityPolicy": {"enum": [*POLICIES]},
        **dict.fromkeys(("defaultMetadata", "overrideMetadata"), _ref("Metadata")),
        **dict.fromkeys(("defaultRuleSet", "overrideRuleSet"), _ref("RuleSet")),
    }
    level: Json = {"enum": [*LEVELS]}
    change = {name: _or_null(each) for name, each in {"compatibility": level, **every_setting}.items()}
    answered = _object("error_code message", error_code={"type": "integer"}, message=_TEXT)
    return {
        "Error": {**answered, "additionalProperties": False},
        "Reference": _object(
            "name subject version",
            name={**_TEXT, "minLength": 1},
            subject={**_TEXT, "minLength": 1},
            version={"anyOf": [_number(1), {"const": -1}]},
        ),
        "Metadata": _object(
            "",
            properties=_or_null({"type": "object", "additionalProperties": _TEXT}),
            tags=_or_null({"type": "object", "additionalProperties": _NAMES}),
            sensitive=_or_null(_NAMES),
        ),
        "RuleSet": _object("", **{name: _or_null(_listed(_ref("Rule"))) for name in LISTS}),
        "Rule": rule,
        "Request": _object(
            "",
            schema=_TEXT,
            **{name: _or_null(each) for name, each in about.items()},
            id=_or_null(_number(-1)),
            version=_or_null(_number(-1)),
            schemaTagsToAdd=_or_null(_listed(_ref("Tagged"))),
            schemaTagsToRemove=_or_null(_listed(_ref("Tagged"))),
        ),
        "TagRequest": _object(
            "",
            newVersion=_or_null(_number(-1)),
            tagsToAdd=_or_null(_listed(_ref("Tagged"))),
            tagsToRemove=_or_null(_listed(_ref("Tagged"))),
            metadata=_or_null(_ref("Metadata")),
            ruleSet=_or_null(_ref("RuleSet")),
            rulesToMerge=_or_null(_ref("RuleSet")),
            rulesToRemove=_or_null(_NAMES),
        ),
        "Tagged": _object("schemaEntity tags", schemaEntity=_ref("Entity"), tags=_NAMES),
        "Entity": _object(
            "entityPath entityType",
            entityPath={**_TEXT, "minLength": 1},
            entityType={"enum": [*ENTITY_KINDS]},
        ),
        "Registered": _object("id version guid schema", id=_number(), version=_number(1), **stored),
        "Version": _object(
            "subject version id guid schema", **place, id=_number(), **stored, deleted={"const": True}
        ),
        "Listed": {"allOf": [_ref("Version"), _object("", aliases=_NAMES)]},
        "Schema": _object("guid schema", **place, **stored, maxId=_number()),
        "Place": _object("subject version", **place),
        "IdInContext": _object("context id", context=_TEXT, id=_number()),
        "Settings": _object("", compatibilityLevel=level, **every_setting),
        "SettingsChange": _object("", **change),
        "Mode": _object("mode", mode={"enum": [*MODES]}),
        "ModeChange": _object("mode", mode={"enum": [*MODES]}),
        "Compatibility": _object("is_compatible", is_compatible=_FLAG, messages=_NAMES),
        "Cluster": _object("id scope", id=_TEXT, scope={"type": "object"}),
        "ServerVersion": _object("version commitId", version=_TEXT, commitId=_TEXT),
        "Deployment": _object("attributes", attributes=_NAMES),
    }


def pattern(path: str) -> str:
    """Convert a path to its form in the route table: ``/subjects/{subject}/versions`` is
    ``subjects//versions``.
    """
    return re.sub(r"\{\w+\}", "", path)[1:]


def with_registry(document: Mapping[str, Any]) -> Json:
    """Return a copy of an OpenAPI document (the app's) with the registry's paths and schemas added."""
    paths: Json = dict(document.get("paths", {}))
    for each in OPERATIONS:
        paths[each.path] = {**paths.get(each.path, {}), each.method.lower(): _described(each)}
    components: Json = dict(document.get("components", {}))
    ours = {f"Registry{name}": each for name, each in _components().items()}
    components["schemas"] = {**components.get("schemas", {}), **ours}
    about = (
        "Confluent's REST API over the log `_schemas`. Every path may also stand below `/contexts/{context}`, "
        "which means that context's subjects."
    )
    tags = [each for each in document.get("tags", []) if each["name"] != TAG]
    return {
        **document,
        "paths": paths,
        "components": components,
        "tags": [*tags, {"name": TAG, "description": about}],
    }


def _described(each: RouteOperation) -> Json:
    found: Json = {
        "tags": [TAG],
        "summary": each.summary,
        "operationId": "registry_" + "_".join([each.method.lower(), *re.findall(r"\w+", each.path)]),
        "parameters": _parameters(each),
        "responses": {**_success(each), **_failures(each)},
    }
    if each.body:
        found["requestBody"] = {"required": True, "content": _content(_ref(each.body), each.sent)}
    return found


def _parameters(each: RouteOperation) -> list[Json]:
    parameters: list[Json] = []
    for name in re.findall(r"\{(\w+)\}", each.path):
        schema, what, example = _IN_PATH[name]
        parameters.append(
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": schema,
                "description": what,
                "example": example,
            }
        )
    for name in each.query.split():
        schema, what = _IN_QUERY[name]
        parameters.append({"name": name, "in": "query", "schema": schema, "description": what})
    if each.body in _REGISTERS:
        parameters += [
            {"name": name, "in": "header", "schema": _TEXT, "description": what}
            for name, what in _IN_HEADERS.items()
        ]
    return parameters


def _content(schema: Json | None, example: Any = None) -> Json:
    one: Json = {} if schema is None else {"schema": schema}
    if example is not None:
        one["example"] = example
    return dict.fromkeys(MEDIA_TYPES, one)


def _success(each: RouteOperation) -> Json:
    headers = {"headers": _OF_WRITES} if each.method in ("PUT", "DELETE") or each.body in _REGISTERS else {}
    if each.answer is None:
        return {"204": {"description": "Done.", **headers}}
    if (
        each.answer == ""
    ):  # the raw text; for Protobuf it is not JSON despite its type, as in Confluent's registry
        return {"200": {"description": "The schema's text.", "content": _content(None)}}
    assert isinstance(each.answer, dict)
    answers: Json = {
        "200": {"description": "The answer.", **headers, "content": _content(each.answer, each.example)}
    }
    if each.tagged:
        answers["304"] = {"description": "Not changed since the ETag in If-None-Match."}
    return answers


def _failures(each: RouteOperation) -> Json:
    by_status: dict[str, list[int]] = {}
    for code in each.codes:
        by_status.setdefault(str(code)[:3], []).append(code)
    return {
        status: {
            "description": "; ".join(f"{code}: {MEANINGS[code]}" for code in codes) + ".",
            "content": _content(_ref("Error"), {"error_code": codes[-1], "message": MEANINGS[codes[-1]]}),
        }
        for status, codes in by_status.items()
    }

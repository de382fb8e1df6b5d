"""Files that people write, from their pydantic models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from hub.access.access_yaml import AccessFile
from hub.alerts.config.alerts_yaml import QueryAlert
from hub.connectors.connectors_file import ConnectorsFile
from hub.governance.flows_file import FlowsFile
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import GoldenFile
from hub.replication.config.mirrors import MirrorsFile
from hub.schema_registry.folder.files import FolderSettings
from hub.schema_registry.policy.policy import PolicyFile
from hub.sinks.sinks_file import SinksFile
from hub.topics.tree.tree_file import TreeFile
from hub.topics.webhooks.webhooks_file import WebhooksFile

from .text import noted_table, prose, sentence

_INTRO = """# YAML files

The keys of each file, generated from the models that read it. Unknown keys are errors with file, line and column
([HUB-1104](errors.md)). `hub.yaml` is in [settings](settings.md). Aliases (`&a`, `*a`) and duplicate keys are refused. A file may
have 1 MB, 50 levels and 200,000 nodes.
"""  # noqa: E501
_MOST_CHOICES = 8
# (file, model, page with examples and the meaning in detail)
FILES: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("topics.yaml", TreeFile, "[keep topics in git](../how-to/keep-topics-in-git.md)"),
    ("views/NAME.yaml, entity view", View, "[view files](view-files.md)"),
    ("views/NAME.yaml, SQL view", SqlView, "[SQL views](sql-views.md)"),
    ("views/tests/NAME.yaml", GoldenFile, "[test a view](../how-to/test-a-view.md)"),
    ("mirrors.yaml", MirrorsFile, "[mirrors](mirrors.md)"),
    ("connectors.yaml", ConnectorsFile, "[manage connectors](../how-to/manage-connectors.md)"),
    ("webhooks.yaml", WebhooksFile, "[receive webhooks](../how-to/receive-webhooks.md)"),
    ("flows.yaml", FlowsFile, "[govern data](../how-to/govern-data.md)"),
    ("sinks.yaml", SinksFile, "[send events out](../how-to/send-events-out.md)"),
    ("policies.yaml", PolicyFile, "[policies](policies.md)"),
    ("access.yaml", AccessFile, "[access](access.md)"),
    ("alerts/NAME.yaml", QueryAlert, "[set up alerts](../how-to/set-up-alerts.md)"),
    ("schemas/schemas.yaml", FolderSettings, "[keep schemas in git](../how-to/keep-schemas-in-git.md)"),
)


def page() -> str:
    """Return the page."""
    lines = [_INTRO]
    for file, model, details in FILES:
        schema = model.model_json_schema()
        lines += [f"## {file}", "", f"Details and examples: {details}.", ""]
        named = schema.get("$defs", {})
        lines += _keys(schema, named)
        for name, part in sorted(named.items()):
            if part.get("properties"):
                lines += [f"### {name} in {file.partition(',')[0]}", "", *_keys(part, named)]
    return "\n".join(lines)


def _keys(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Iterator[str]:
    yield from noted_table(
        ("key", "type", "default", "meaning"),
        [
            (
                f"`{key}`",
                type_of(said, named),
                "required" if key in schema.get("required", ()) else _default(said),
                prose(sentence(said.get("description", ""))),
            )
            for key, said in schema.get("properties", {}).items()
        ],
    )


def _default(said: Mapping[str, Any]) -> str:
    default = said.get("default")
    if default in (None, "", [], {}):
        return ""
    return f"`{json.dumps(default)}`" if len(json.dumps(default)) < 60 else "see the model"


def type_of(said: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    """Return the type of a JSON Schema node in words."""
    if "$ref" in said:
        name = said["$ref"].rpartition("/")[2]
        return name if named.get(name, {}).get("properties") else type_of(named.get(name, {}), {})
    if "enum" in said:
        few = said["enum"] if len(said["enum"]) <= _MOST_CHOICES else [*said["enum"][:_MOST_CHOICES], "…"]
        return " or ".join(f"`{each}`" for each in few)
    if "const" in said:
        return f"`{said['const']}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in said:
            kinds = dict.fromkeys(type_of(each, named) for each in said[several])
            return " or ".join(each for each in kinds if each not in ("", "null")) or "anything"
    kind = said.get("type", "")
    if kind == "array":
        return f"list of {type_of(said.get('items', {}), named) or 'anything'}"
    if kind == "object" and isinstance(said.get("additionalProperties"), dict):
        return f"mapping to {type_of(said['additionalProperties'], named) or 'anything'}"
    words = {"string": "text", "object": "mapping", "boolean": "true or false", "null": "null"}
    return words.get(kind, str(kind)) or "anything"

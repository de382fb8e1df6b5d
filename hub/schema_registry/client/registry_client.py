"""[edge] httpx: registry client for the hub's own parts. Works with any registry that has Confluent's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hub.errors import CallerError, NotFound
from hub.schema_registry.client.http import RegistryHttp, quoted, refusals_in
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.model.lru_cache import LruCache

_DEEPEST = 16  # references of references; the registry has the same limit
_MOST_CHARACTERS = 16_000_000  # of cached schemas by id


class RegistryClient(RegistryHttp):
    """Registry client: ``port.SchemaRegistry`` and more, over HTTP. Thread safe. Caches the schemas last
    requested by id: an id's schema never changes.

    Raises NotFound (404), Conflict (incompatible, with the reasons), CallerError (refused), PeerError (no
    answer).
    """

    def __init__(self, url: str, timeout_s: float = 15.0) -> None:
        super().__init__(url, timeout_s)
        self._by_id: LruCache[int, str] = LruCache(_MOST_CHARACTERS)

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: str = "AVRO",
        references: Sequence[Reference] = (),
        metadata: Mapping[str, Any] | None = None,
        rule_set: Mapping[str, Any] | None = None,
    ) -> int:
        """Register the schema under the subject unless it is registered already; return its id."""
        body: dict[str, Any] = {"schema": schema}
        if schema_type != "AVRO":
            body["schemaType"] = schema_type
        if references:
            body["references"] = [each.as_json() for each in references]
        if metadata is not None:
            body["metadata"] = metadata
        if rule_set is not None:
            body["ruleSet"] = rule_set
        answer = self.request("POST", f"/subjects/{quoted(subject)}/versions", body)
        return int(answer["id"])

    def schema(self, schema_id: int) -> str:
        """Return the text of the schema with this id."""
        known = self._by_id.get(schema_id)
        if known is None:
            known = str(self.request("GET", f"/schemas/ids/{schema_id}")["schema"])
            self._by_id.put(schema_id, known, len(known) + 100)
        return known

    def text_of(self, schema_id: int) -> tuple[str, str, list[Reference]]:
        """Return (text, type, references) of the schema with this id, as registered."""
        answer = self.request("GET", f"/schemas/ids/{schema_id}")
        references = [
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in answer.get("references") or ()
        ]
        return str(answer["schema"]), str(answer.get("schemaType") or "AVRO"), references

    def metadata_of(self, schema_id: int) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """Return (metadata, rule set) of the schema with this id; None for each that it lacks."""
        answer = self.request("GET", f"/schemas/ids/{schema_id}")
        return answer.get("metadata"), answer.get("ruleSet")

    def lookup(
        self,
        subject: str,
        schema: str,
        schema_type: str = "AVRO",
        references: Sequence[Reference] = (),
        *,
        deleted: bool = False,
    ) -> RegisteredSchema:
        """Return the subject's version that has this schema, without registering anything. Raises NotFound.

        ``deleted`` also finds soft-deleted versions.
        """
        body: dict[str, Any] = {"schema": schema, "schemaType": schema_type}
        if references:
            body["references"] = [each.as_json() for each in references]
        query = {"deleted": "true"} if deleted else {}
        return _registered(self.request("POST", f"/subjects/{quoted(subject)}", body, **query))

    def source(self, schema_id: int) -> SchemaSource:
        """Return the schema with this id, its references, rules and metadata, ready to be parsed."""
        answer = self.request("GET", f"/schemas/ids/{schema_id}")
        return replace(
            self._source(answer, {}, 0), rule_set=answer.get("ruleSet"), metadata=answer.get("metadata")
        )

    def _source(
        self, answer: Any, schema_sources: dict[tuple[str, int], SchemaSource], depth: int
    ) -> SchemaSource:
        if depth > _DEEPEST:
            raise CallerError(f"the schema's references nest deeper than {_DEEPEST}")
        named = []
        for each in answer.get("references") or ():
            place = (str(each["subject"]), int(each["version"]))
            if place not in schema_sources:
                path = f"/subjects/{quoted(place[0])}/versions/{place[1]}"
                schema_sources[place] = self._source(
                    self.request("GET", path, deleted="true"), schema_sources, depth + 1
                )
            named.append((str(each["name"]), schema_sources[place]))
        return SchemaSource.of(str(answer.get("schemaType") or "AVRO"), str(answer["schema"]), tuple(named))

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        """Return every subject that has the schema with this id, soft-deleted ones included.

        Raises NotFound.
        """
        return frozenset(self.request("GET", f"/schemas/ids/{schema_id}/subjects", deleted="true"))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return _registered(self.request("GET", f"/subjects/{quoted(subject)}/versions/{version}"))

    def latest(self, subject: str) -> RegisteredSchema:
        return _registered(self.request("GET", f"/subjects/{quoted(subject)}/versions/latest"))

    def known_latest(self, subject: str) -> RegisteredSchema | None:
        try:
            return self.latest(subject)
        except NotFound:
            return None

    def catch_up(self) -> None:
        """Do nothing: the server catches up for each request about something unknown."""

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return every version of a subject, oldest first; [] when the subject does not exist.

        Deleted versions are included: the log still holds events written with them.
        """
        path = f"/subjects/{quoted(subject)}/versions"
        try:
            numbers: list[int] = self.request("GET", path, deleted="true")
        except NotFound:
            return []
        return [_registered(self.request("GET", f"{path}/{number}", deleted="true")) for number in numbers]

    def subjects(self) -> list[str]:
        return list(self.request("GET", "/subjects"))

    def ids(self) -> frozenset[int]:
        """Return every id that is bound to a schema, those of deleted versions included."""
        return frozenset(int(each["id"]) for each in self.request("GET", "/schemas", deleted="true"))

    def compatibility(self, subject: str) -> str:
        """Return the subject's effective compatibility level."""
        answer = self.request("GET", f"/config/{quoted(subject)}", defaultToGlobal="true")
        return str(answer["compatibilityLevel"])

    def set_compatibility(self, subject: str, level: str) -> None:
        self.request("PUT", f"/config/{quoted(subject)}", {"compatibility": level})

    def incompatibilities(self, subject: str, schema: str) -> list[str]:
        """Return the reasons why the registry would refuse the schema, by its level or by a rule; [] for
        none.
        """
        path = f"/compatibility/subjects/{quoted(subject)}/versions"
        return refusals_in(self.request("POST", path, {"schema": schema}, verbose="true"))

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        return list(self.request("DELETE", f"/subjects/{quoted(subject)}", permanent=str(permanent).lower()))


def _registered(answer: Any) -> RegisteredSchema:
    kind = str(answer.get("schemaType") or "AVRO")
    return RegisteredSchema(int(answer["id"]), int(answer["version"]), str(answer["schema"]), kind)

"""[edge] Routes of schemas, by id and by GUID."""

from __future__ import annotations

from contextlib import suppress

from hub.caller import sees_subject
from hub.schema_registry.http.answers import FOR_EVER, Answers
from hub.schema_registry.http.asgi import HttpAnswer, HttpCall
from hub.schema_registry.http.bodies import described, schema
from hub.schema_registry.http.calls import is_named, schema_id_of, wanted
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.across_contexts import ids_of_guid, listed_versions
from hub.schema_registry.registry.state_machine import Registry, RequestRefused, schema_not_found


class SchemaRoutes:
    """Handlers below ``/schemas``."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def schemas(self, call: HttpCall) -> HttpAnswer:
        begins = wanted(call)
        found = self._answers.node.read(
            lambda registry: listed_versions(
                registry,
                begins,
                deleted=call.flag("deleted"),
                latest=call.flag("latestOnly"),
                rule_type=call.text("ruleType"),
                aliases=call.flag("aliases"),
            )
        )
        found = [(each, aliases) for each, aliases in found if sees_subject(each.subject)]
        return HttpAnswer.of([described(each, aliases=aliases) for each, aliases in call.page(found)])

    def schema_of_id(self, call: HttpCall) -> HttpAnswer:
        schema_id, subject = schema_id_of(call.params[0]), call.optional("subject")
        if not call.text("format") and not call.flag("fetchMaxId"):
            return self._answers.by_id(call, schema_id, subject)
        stored = self._answers.visible_schema(
            self._answers.node.read(lambda registry: registry.by_id(schema_id, subject)), schema_id
        )
        text = self._answers.text(call, stored)
        max_id = (
            self._answers.node.read(lambda registry: registry.max_id(subject))
            if call.flag("fetchMaxId")
            else None
        )
        return HttpAnswer.of(schema(stored, text=text, with_place=is_named(subject), max_id=max_id))

    def text_of_id(self, call: HttpCall) -> HttpAnswer:
        stored = self._of_id(call)
        return HttpAnswer(self._answers.text(call, stored).encode())

    def subjects_of_id(self, call: HttpCall) -> HttpAnswer:
        return HttpAnswer.of(call.page(list(dict.fromkeys(each.subject for each in self._uses(call)))))

    def versions_of_id(self, call: HttpCall) -> HttpAnswer:
        uses = [{"subject": each.subject, "version": each.version} for each in self._uses(call)]
        return HttpAnswer.of(call.page(uses))

    def _of_id(self, call: HttpCall) -> SchemaStored:
        schema_id, subject = schema_id_of(call.params[0]), call.optional("subject")
        return self._answers.visible_schema(
            self._answers.node.read(lambda registry: registry.by_id(schema_id, subject)), schema_id
        )

    def _uses(self, call: HttpCall) -> list[SchemaStored]:
        self._of_id(call)
        schema_id, subject, deleted = (
            schema_id_of(call.params[0]),
            call.optional("subject"),
            call.flag("deleted"),
        )
        uses = self._answers.node.read(
            lambda registry: registry.uses_of(schema_id, subject=subject, deleted=deleted)
        )
        visible = (each for each in uses if sees_subject(each.subject))
        return sorted(visible, key=lambda each: (each.subject, each.version))

    def schema_of_guid(self, call: HttpCall) -> HttpAnswer:
        stored = self._of_guid(call.params[0])[0]
        if call.text("format"):
            return HttpAnswer.of(schema(stored, text=self._answers.text(call, stored)))
        return self._answers.cached_answer(("guid", call.params[0]), stored, schema).answer(call, FOR_EVER)

    def ids_of_guid(self, call: HttpCall) -> HttpAnswer:
        stored_schemas = self._of_guid(call.params[0])
        return HttpAnswer.of(
            [{"context": names.context_of(each.subject), "id": each.schema_id} for each in stored_schemas]
        )

    def _of_guid(self, guid: str) -> list[SchemaStored]:
        """Return the schemas of a GUID that the caller may see, one per context.

        Raises RequestRefused 40403 for none.
        """

        def every(registry: Registry) -> list[SchemaStored]:
            return [registry.contexts[context].ids[number] for context, number in ids_of_guid(registry, guid)]

        stored_schemas: list[SchemaStored] = []
        for each in self._answers.node.read(every):
            with suppress(RequestRefused):
                stored_schemas.append(self._answers.visible_schema(each, guid))
        if not stored_schemas:
            raise schema_not_found(guid)
        return stored_schemas

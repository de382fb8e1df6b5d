"""[edge] Routes of subjects: versions, registration, deletion, compatibility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hub.caller import Action, require, sees_schema, sees_subject
from hub.schema_registry.http.access_rules import place_of
from hub.schema_registry.http.answers import ASK_AGAIN, Answers
from hub.schema_registry.http.asgi import HttpAnswer, HttpCall
from hub.schema_registry.http.bodies import (
    command_of,
    command_of_tags,
    described,
    registered,
    tagged,
    warnings_header,
)
from hub.schema_registry.http.calls import caller_of, wanted
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.across_contexts import same_name, version_anywhere, with_metadata
from hub.schema_registry.registry.state_machine import (
    DeleteSubject,
    DeleteVersion,
    RegisterSchema,
    Registry,
    RequestRefused,
    schema_not_found,
    subject_not_found,
)


class SubjectRoutes:
    """Handlers below ``/subjects`` and ``/compatibility``."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def subjects(self, call: HttpCall) -> HttpAnswer:
        deleted, only = call.flag("deleted"), call.flag("deletedOnly")
        begins = wanted(call)

        def read_subjects(registry: Registry) -> list[str]:
            return [
                each
                for each in registry.subjects
                if begins(each)
                and sees_subject(each)
                and (not registry.numbers(each) if only else deleted or registry.numbers(each))
            ]

        return HttpAnswer.of(call.page(sorted(self._answers.node.read(read_subjects))))

    def versions(self, call: HttpCall) -> HttpAnswer:
        subject = self._answers.subject(call)
        deleted, only, negative = (
            call.flag(each) for each in ("deleted", "deletedOnly", "deletedAsNegative")
        )

        def numbers(registry: Registry) -> list[int]:
            every = list(registry.numbers(subject, deleted=True))
            live = set(registry.numbers(subject))
            if not (every if deleted or only or negative else live):
                raise subject_not_found(subject)
            if negative:
                return [each if each in live else -each for each in every]
            if only:
                return [each for each in every if each not in live]
            return every if deleted else [each for each in every if each in live]

        return HttpAnswer.of(call.page(self._answers.node.read(numbers)))

    def version(self, call: HttpCall) -> HttpAnswer:
        subject, number = self._answers.subject(call), call.params[1]
        deleted = call.flag("deleted")
        stored = self._answers.node.read(
            lambda registry: version_anywhere(registry, subject, number, deleted=deleted)
        )
        if call.text("format"):
            return HttpAnswer.of(described(stored, self._answers.text(call, stored)))
        ready = self._answers.cached_answer(("version", (stored.subject, stored.version)), stored, described)
        return ready.answer(call, ASK_AGAIN)

    def schema_of_version(self, call: HttpCall) -> HttpAnswer:
        subject, deleted = self._answers.subject(call), call.flag("deleted")
        stored = self._answers.node.read(
            lambda registry: version_anywhere(registry, subject, call.params[1], deleted=deleted)
        )
        return HttpAnswer(self._answers.text(call, stored).encode())

    def referenced_by(self, call: HttpCall) -> HttpAnswer:
        subject, deleted = self._answers.subject(call), call.flag("deleted")

        def ids(registry: Registry) -> list[int]:
            stored = registry.version(subject, call.params[1], deleted=True)
            found = registry.referenced_by(stored.subject, stored.version, deleted=deleted)
            around = names.joined(names.context_of(stored.subject), "") or None

            def subjects(schema_id: int) -> list[str]:
                return [each.subject for each in registry.uses_of(schema_id, subject=around, deleted=True)]

            return [each for each in found if sees_schema(lambda each=each: subjects(each))]  # type: ignore[misc]

        return HttpAnswer.of(call.page(self._answers.node.read(ids)))

    def version_with_metadata(self, call: HttpCall) -> HttpAnswer:
        subject, deleted = self._answers.subject(call), call.flag("deleted")
        keys, values = call.query.get("key", []), call.query.get("value", [])
        wanted = dict(zip(keys, values, strict=False))
        stored = self._answers.node.read(
            lambda registry: with_metadata(registry, subject, wanted, deleted=deleted)
        )
        return HttpAnswer.of(described(stored, self._answers.text(call, stored)))

    def register(self, call: HttpCall) -> HttpAnswer:
        body = call.json()
        sent = self._command(call, body)
        command = self._with_tags(sent, body)
        warned = self._warned(command)
        answer, position = self._answers.node.submit(command)
        made = HttpAnswer.of(registered(answer, self._as_sent(call, sent, answer)), position=position)
        return replace(made, headers=(*made.headers, *warned))

    def _with_tags(self, command: RegisterSchema, body: Mapping[str, Any]) -> RegisterSchema:
        """Add to the command's schema, and remove from it, the tags that the request names."""
        add, remove = tagged(body, "schemaTagsToAdd"), tagged(body, "schemaTagsToRemove")
        if not add and not remove:
            return command
        return replace(self._answers.node.retagged(command, add, remove), version=command.version or -1)

    def _warned(self, command: RegisterSchema) -> list[tuple[bytes, bytes]]:
        """Return the header ``Hub-Warnings``: violated rules that only warn, then changes that no level
        reports.

        The body stays Confluent's.
        """
        subject = names.normal(command.subject)
        try:
            warned = self._answers.node.read(lambda registry: registry.rulebook.warns(subject))
            broken = self._answers.node.violations(command) if warned else []
            return warnings_header([*broken, *self._answers.node.remarks(command)])
        except RequestRefused:  # the registration will be refused with its own message
            return []

    def tag(self, call: HttpCall) -> HttpAnswer:
        body, subject = call.json(), self._answers.subject(call)
        of = self._answers.node.read(lambda registry: registry.version(subject, call.params[1]))
        command = replace(command_of_tags(of, body), caller=caller_of(call))
        add, remove = tagged(body, "tagsToAdd"), tagged(body, "tagsToRemove")
        if add or remove:
            command = self._answers.node.retagged(command, add, remove)
        answer, position = self._answers.node.submit(command)
        return HttpAnswer.of(registered(answer, self._answers.text(call, answer)), position=position)

    def _as_sent(self, call: HttpCall, command: RegisterSchema, stored: SchemaStored) -> str:
        """Return the schema in the form in which it was sent.

        Python's client caches the answer as the registered schema, and its Protobuf deserializers then expect
        a serialized descriptor.
        """
        sent = command.schema_type == "PROTOBUF" and not {";", "{"} & set(command.schema)
        return self._answers.node.formatted(stored, call.text("format") or ("serialized" if sent else ""))

    def lookup(self, call: HttpCall) -> HttpAnswer:
        command, deleted = self._command(call, call.json()), call.flag("deleted")
        for subject in self._answers.node.read(lambda registry: same_name(registry, command.subject)):
            try:
                there = RegisterSchema(subject, *_after_subject(command))
                stored = self._answers.node.lookup(there, deleted=deleted)
            except RequestRefused:
                if subject == command.subject:
                    raise
                continue
            if stored is not None:
                return HttpAnswer.of(described(stored, self._as_sent(call, command, stored)))
        if not self._answers.node.read(lambda registry: registry.numbers(command.subject, deleted=deleted)):
            raise subject_not_found(command.subject)
        raise schema_not_found()

    def _command(self, call: HttpCall, body: Mapping[str, Any]) -> RegisterSchema:
        command = command_of(self._answers.subject(call), body, normalize=call.flag("normalize"))
        for each in command.references:  # referenced schemas are read with the schema
            require(Action.describe, place_of(names.beside(command.subject, each.subject)))
        return replace(command, caller=caller_of(call))

    def delete_version(self, call: HttpCall) -> HttpAnswer:
        return self._answers.submit(
            DeleteVersion(self._answers.subject(call), call.params[1], call.flag("permanent"))
        )

    def delete_subject(self, call: HttpCall) -> HttpAnswer:
        return self._answers.submit(DeleteSubject(self._answers.subject(call), call.flag("permanent")))

    def compatible(self, call: HttpCall) -> HttpAnswer:
        body = call.json()
        command = self._command(call, body)
        if not command.schema.strip():
            raise RequestRefused(422, 42201, "Empty schema")
        command = self._with_tags(command, body)
        version = call.params[1] if len(call.params) > 1 else None
        reasons = [str(reason) for reason in self._answers.node.incompatibilities(command, version)]
        violations = self._answers.node.violations(command)
        reasons += [str(each) for each in violations if each.severity == "block"]
        answer: dict[str, Any] = {"is_compatible": not reasons}
        if call.flag("verbose"):
            warned = [each for each in violations if each.severity != "block"]
            warnings = [*warned, *(self._answers.node.remarks(command) if version is None else ())]
            answer["messages"] = reasons + [f"warning: {each}" for each in warnings]
        return HttpAnswer.of(answer)


def _after_subject(command: RegisterSchema) -> tuple[Any, ...]:
    return (
        command.schema,
        command.schema_type,
        command.references,
        command.metadata,
        command.rule_set,
        command.normalize,
    )

"""[edge] ASGI: Confluent's REST API, with the paths, status codes, error codes and bodies that clients
expect.

Source: Confluent Schema Registry API reference 8.x, and observed answers. Every path also exists below
``/contexts/{ctx}``. Answers to writes have ``Hub-Offset``, their offset in the log, and ``Hub-Position``, the
token to read one's own write with; a registration's ``Hub-Warnings`` lists violated rules that only warn.
Answers by id and by version are cached as bytes; consumers request nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Route

from hub.caller import CALLER, HUB, Action, Forbidden, Unauthenticated, require, sees_schema, sees_subject
from hub.errors import CallerError, HubError, PeerError
from hub.schema_registry.formats import known
from hub.schema_registry.http.access_rules import RULES, On, place_of
from hub.schema_registry.http.asgi import (
    NOT_ALLOWED,
    NOT_FOUND,
    UNSUPPORTED,
    ClientGone,
    HttpAnswer,
    HttpCall,
    Ready,
    Receive,
    Scope,
    Send,
    media_type_is_known,
    read_body,
    respond,
)
from hub.schema_registry.http.bodies import (
    command_of,
    command_of_tags,
    described,
    registered,
    schema,
    tagged,
    warnings_header,
)
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import HIGHEST_ID, SchemaStored
from hub.schema_registry.model.lru_cache import LruCache
from hub.schema_registry.registry.across_contexts import same_name, version_anywhere
from hub.schema_registry.registry.rulebook import PolicyCaller
from hub.schema_registry.registry.state_machine import (
    DEFAULT_MODE,
    Command,
    DeleteContext,
    DeleteSubject,
    DeleteVersion,
    RegisterSchema,
    Registry,
    RequestRefused,
    SetLevel,
    SetMode,
    schema_not_found,
    settings_json,
    subject_not_found,
)
from hub.schema_registry.server.node import RegistryNode

log = logging.getLogger(__name__)

SERVER_VERSION: Final = "8.1.0-hub"
_MOST_READY_BYTES = 64 * 1_048_576
# An id's schema never changes; a version or "latest" may change at any time and must be requested again.
_FOR_EVER = b"max-age=86400, immutable"
_ASK_AGAIN = b"no-cache"

Handler = Callable[[HttpCall], HttpAnswer]
_OPEN = ""  # a variable part of a path


class _Anything(PathConvertor):
    """A path that may contain line breaks: subjects with them must be refused as Confluent refuses them."""

    regex = "(?s:.*)"


register_url_convertor("anything", _Anything())


def create_router(node: RegistryNode) -> APIRouter:
    """Return the routes of one node, at the root of the app, where Confluent's clients expect them."""
    api = Api(node)
    router = APIRouter()
    for path in (
        "/subjects",
        "/schemas",
        "/config",
        "/mode",
        "/contexts",
    ):
        router.routes.append(Route(path, api, include_in_schema=False))
    for path in ("/subjects", "/schemas", "/config", "/mode", "/contexts", "/compatibility", "/v1/metadata"):
        router.routes.append(Route(f"{path}/{{rest:anything}}", api, include_in_schema=False))
    return router


class Api:
    """The ASGI app. Answers from memory directly, everything else in a thread."""

    def __init__(self, node: RegistryNode) -> None:
        self.node = node
        self._ready: LruCache[tuple[str, object], tuple[SchemaStored, Ready]] = LruCache(_MOST_READY_BYTES)
        self._routes: dict[tuple[int, str], list[tuple[str, tuple[str, ...], dict[str, Handler]]]] = {}
        for pattern, methods in self.table():
            parts = tuple(pattern.split("/"))
            self._routes.setdefault((len(parts), parts[0]), []).append((pattern, parts, methods))

    def table(self) -> Iterator[tuple[str, dict[str, Handler]]]:
        """Yield (path with variable parts empty, handlers by method). The first match is used.

        ``openapi.yaml`` describes each.
        """
        yield "subjects", {"GET": self.subjects}
        yield "subjects//versions", {"GET": self.versions, "POST": self.register}
        yield "subjects//metadata", {"GET": self.version_with_metadata}
        yield "subjects/", {"POST": self.lookup, "DELETE": self.delete_subject}
        yield "subjects//versions/", {"GET": self.version, "DELETE": self.delete_version}
        yield "subjects//versions//schema", {"GET": self.schema_of_version}
        yield "subjects//versions//referencedby", {"GET": self.referenced_by}
        yield "subjects//versions//tags", {"POST": self.tag}
        yield "schemas", {"GET": self.schemas}
        yield "schemas/types", {"GET": lambda _: HttpAnswer.of(known.types())}
        yield "schemas/ids/", {"GET": self.schema_of_id}
        yield "schemas/ids//schema", {"GET": self.text_of_id}
        yield "schemas/ids//subjects", {"GET": self.subjects_of_id}
        yield "schemas/ids//versions", {"GET": self.versions_of_id}
        yield "schemas/guids/", {"GET": self.schema_of_guid}
        yield "schemas/guids//ids", {"GET": self.ids_of_guid}
        for path in ("config", "config/"):
            yield path, {"GET": self.settings, "PUT": self.set_settings, "DELETE": self.unset_settings}
        for path in ("mode", "mode/"):
            yield path, {"GET": self.mode, "PUT": self.set_mode, "DELETE": self.unset_mode}
        yield "compatibility/subjects//versions", {"POST": self.compatible}
        yield "compatibility/subjects//versions/", {"POST": self.compatible}
        yield "contexts", {"GET": self.contexts}
        yield "contexts/", {"DELETE": self.delete_context}
        yield "v1/metadata/id", {"GET": self.cluster_id}
        yield (
            "v1/metadata/version",
            {"GET": lambda _: HttpAnswer.of({"version": SERVER_VERSION, "commitId": ""})},
        )
        yield "v1/metadata/deployment", {"GET": lambda _: HttpAnswer.of({"attributes": []})}

    # ---- from a request to an answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Name of the route in traces: its first segment. The whole path would give one name per subject.
        scope["hub.route"] = f"/{scope['path'].split('/', 2)[1]}/…"
        try:
            answer = self._at_hand(scope) or await self._answer(scope, receive)
        except ClientGone:
            return
        await respond(scope, send, answer)

    def _at_hand(self, scope: Scope) -> HttpAnswer | None:
        """Return the answer to a consumer's request if it needs no waiting; otherwise None."""
        if scope["method"] != "GET" or scope["query_string"] or not self.node.ready:
            return None
        try:
            call = HttpCall.of(scope)
            match call.segments:
                case ["schemas", "ids", schema_id]:
                    return self._by_id(call, _schema_id(schema_id), None)
                case ["subjects", subject, "versions", version]:
                    call.params = [subject, version]
                    self._allow(call, "subjects//versions/")
                    return self.version(call)
        except RequestRefused as refused:
            if refused.is_missing:  # another node may know it, which requires waiting
                return None
            return HttpAnswer.error(refused.status, refused.error_code, refused.message)
        except (Forbidden, Unauthenticated) as error:
            return _denied(error)
        return None

    async def _answer(self, scope: Scope, receive: Receive) -> HttpAnswer:
        writes = scope["method"] in ("POST", "PUT", "DELETE")
        try:
            call = HttpCall.of(scope)
            in_context(call)
            found = self._find(call)
            if found is None:
                return NOT_FOUND
            pattern, methods = found
            handler = methods.get(call.method)
            if handler is None:
                allowed = ", ".join(sorted(methods)).encode()
                return HttpAnswer(NOT_ALLOWED.body, 405, [(b"allow", allowed)])
            self._allow(call, pattern)
            if call.method in ("POST", "PUT"):
                if not media_type_is_known(call):
                    return UNSUPPORTED
                await read_body(call, receive)
            reads = call.method == "GET" or handler in (self.lookup, self.compatible)
            if reads:
                return await run_in_threadpool(self.node.caught_up, partial(handler, call))
            return await run_in_threadpool(handler, call)
        except RequestRefused as refused:
            return HttpAnswer.error(refused.status, refused.error_code, refused.message)
        except (Forbidden, Unauthenticated) as error:
            return _denied(error)
        except PeerError as error:
            if writes:
                return HttpAnswer.error(500, 50002, f"Register operation timed out: {error.message}")
            return HttpAnswer.error(500, 50001, f"Error in the backend data store: {error.message}")
        except CallerError as error:  # Kafka refused a record that exceeds the topic's limit
            return HttpAnswer.error(422, 42209, f"Write failed: {error.message}")
        except HubError as error:
            log.error("%s %s: %s", scope["method"], scope["path"], error.message)
            return HttpAnswer.error(500, 500, error.message)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            return HttpAnswer.error(500, 500, "HTTP 500 Internal Server Error")

    def _allow(self, call: HttpCall, pattern: str) -> None:
        """Check access to a path. Raises Forbidden, Unauthenticated.

        For the schema of an id, its handler checks access.
        """
        if CALLER.get() is None:
            return
        rule = RULES.get(pattern, {}).get(call.method)
        if rule is None:
            raise Forbidden("this path is granted to nobody")
        action, on = rule
        if on is On.subject:
            # Check both names: an alias requires a grant itself, and does not bypass its subject's grants.
            require(action, place_of(call.params[0]))
            require(action, place_of(self._subject(call)))
        elif on is On.place:
            require(action, place_of(call.params[0]))
        elif on is On.hub:
            require(action, HUB)

    def _seen(self, stored: SchemaStored, asked: object) -> SchemaStored:
        """Return the schema of an id under a subject that the caller may see.

        Raises RequestRefused 40403, as for an unknown id, when there is none, so that the caller does not
        learn that it exists. ``asked``: the id or GUID of the request.
        """
        if CALLER.get() is None or sees_subject(stored.subject):
            return stored
        around = names.joined(names.context_of(stored.subject), "")
        uses = self.node.read(
            lambda registry: registry.uses_of(stored.schema_id, subject=around or None, deleted=True)
        )
        for each in uses:
            if sees_subject(each.subject):
                return each
        raise schema_not_found(asked)

    def _find(self, call: HttpCall) -> tuple[str, dict[str, Handler]] | None:
        segments = call.segments
        for pattern, parts, methods in self._routes.get((len(segments), segments[0]), ()):
            if all(part in (_OPEN, each) for part, each in zip(parts, segments, strict=True)):
                call.params = [each for part, each in zip(parts, segments, strict=True) if part == _OPEN]
                return pattern, methods
        return None

    def _submit(self, command: Command, told: Callable[[Any], Any] = lambda answer: answer) -> HttpAnswer:
        answer, position = self.node.submit(command)
        return HttpAnswer.of(told(answer), position=position)

    def _subject(self, call: HttpCall) -> str:
        """Return the subject of a path, normalized, with an alias replaced by its subject."""
        subject = names.normal(call.params[0])
        return self.node.registry.target(subject) if self.node.registry.levels else subject

    # ---- subjects

    def subjects(self, call: HttpCall) -> HttpAnswer:
        deleted, only = call.flag("deleted"), call.flag("deletedOnly")
        wanted = _wanted(call)

        def found(registry: Registry) -> list[str]:
            return [
                each
                for each in registry.subjects
                if wanted(each)
                and sees_subject(each)
                and (not registry.numbers(each) if only else deleted or registry.numbers(each))
            ]

        return HttpAnswer.of(call.page(sorted(self.node.read(found))))

    def versions(self, call: HttpCall) -> HttpAnswer:
        subject = self._subject(call)
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

        return HttpAnswer.of(call.page(self.node.read(numbers)))

    def version(self, call: HttpCall) -> HttpAnswer:
        subject, number = self._subject(call), call.params[1]
        deleted = call.flag("deleted")
        stored = self.node.read(lambda registry: version_anywhere(registry, subject, number, deleted=deleted))
        if call.text("format"):
            return HttpAnswer.of(described(stored, self._text(call, stored)))
        ready = self._kept(("version", (stored.subject, stored.version)), stored, described)
        return ready.answer(call, _ASK_AGAIN)

    def schema_of_version(self, call: HttpCall) -> HttpAnswer:
        subject, deleted = self._subject(call), call.flag("deleted")
        stored = self.node.read(
            lambda registry: version_anywhere(registry, subject, call.params[1], deleted=deleted)
        )
        return HttpAnswer(self._text(call, stored).encode())

    def referenced_by(self, call: HttpCall) -> HttpAnswer:
        subject, deleted = self._subject(call), call.flag("deleted")

        def ids(registry: Registry) -> list[int]:
            stored = registry.version(subject, call.params[1], deleted=True)
            found = registry.referenced_by(stored.subject, stored.version, deleted=deleted)
            around = names.joined(names.context_of(stored.subject), "") or None

            def subjects(schema_id: int) -> list[str]:
                return [each.subject for each in registry.uses_of(schema_id, subject=around, deleted=True)]

            return [each for each in found if sees_schema(lambda each=each: subjects(each))]  # type: ignore[misc]

        return HttpAnswer.of(call.page(self.node.read(ids)))

    def version_with_metadata(self, call: HttpCall) -> HttpAnswer:
        subject, deleted = self._subject(call), call.flag("deleted")
        keys, values = call.query.get("key", []), call.query.get("value", [])
        wanted = dict(zip(keys, values, strict=False))
        stored = self.node.read(lambda registry: registry.with_metadata(subject, wanted, deleted=deleted))
        return HttpAnswer.of(described(stored, self._text(call, stored)))

    def _text(self, call: HttpCall, stored: SchemaStored) -> str:
        """Return the schema in the requested format."""
        return self.node.formatted(stored, call.text("format"))

    def register(self, call: HttpCall) -> HttpAnswer:
        body = call.json()
        sent = self._command(call, body)
        command = self._with_tags(sent, body)
        warned = self._warned(command)
        answer, position = self.node.submit(command)
        made = HttpAnswer.of(registered(answer, self._as_sent(call, sent, answer)), position=position)
        made.headers += warned
        return made

    def _with_tags(self, command: RegisterSchema, body: Mapping[str, Any]) -> RegisterSchema:
        """Add to the command's schema, and remove from it, the tags that the request names."""
        add, remove = tagged(body, "schemaTagsToAdd"), tagged(body, "schemaTagsToRemove")
        if not add and not remove:
            return command
        return replace(self.node.retagged(command, add, remove), version=command.version or -1)

    def _warned(self, command: RegisterSchema) -> list[tuple[bytes, bytes]]:
        """Return the header ``Hub-Warnings``: violated rules that only warn, then changes that no level
        reports.

        The body stays Confluent's.
        """
        subject = names.normal(command.subject)
        try:
            warned = self.node.read(lambda registry: registry.rulebook.warns(subject))
            broken = self.node.violations(command) if warned else []
            return warnings_header([*broken, *self.node.remarks(command)])
        except RequestRefused:  # the registration will be refused with its own message
            return []

    def tag(self, call: HttpCall) -> HttpAnswer:
        body, subject = call.json(), self._subject(call)
        of = self.node.read(lambda registry: registry.version(subject, call.params[1]))
        command = replace(command_of_tags(of, body), caller=_caller(call))
        add, remove = tagged(body, "tagsToAdd"), tagged(body, "tagsToRemove")
        if add or remove:
            command = self.node.retagged(command, add, remove)
        answer, position = self.node.submit(command)
        return HttpAnswer.of(registered(answer, self._text(call, answer)), position=position)

    def _as_sent(self, call: HttpCall, command: RegisterSchema, stored: SchemaStored) -> str:
        """Return the schema in the form in which it was sent.

        Python's client caches the answer as the registered schema, and its Protobuf deserializers then expect
        a serialized descriptor.
        """
        sent = command.schema_type == "PROTOBUF" and not {";", "{"} & set(command.schema)
        return self.node.formatted(stored, call.text("format") or ("serialized" if sent else ""))

    def lookup(self, call: HttpCall) -> HttpAnswer:
        command, deleted = self._command(call, call.json()), call.flag("deleted")
        for subject in self.node.read(lambda registry: same_name(registry, command.subject)):
            try:
                there = RegisterSchema(subject, *_after_subject(command))
                stored = self.node.lookup(there, deleted=deleted)
            except RequestRefused:
                if subject == command.subject:
                    raise
                continue
            if stored is not None:
                return HttpAnswer.of(described(stored, self._as_sent(call, command, stored)))
        if not self.node.read(lambda registry: registry.numbers(command.subject, deleted=deleted)):
            raise subject_not_found(command.subject)
        raise schema_not_found()

    def _command(self, call: HttpCall, body: Mapping[str, Any]) -> RegisterSchema:
        command = command_of(self._subject(call), body, normalize=call.flag("normalize"))
        for each in command.references:  # referenced schemas are read with the schema
            require(Action.describe, place_of(names.beside(command.subject, each.subject)))
        return replace(command, caller=_caller(call))

    def delete_version(self, call: HttpCall) -> HttpAnswer:
        return self._submit(DeleteVersion(self._subject(call), call.params[1], call.flag("permanent")))

    def delete_subject(self, call: HttpCall) -> HttpAnswer:
        return self._submit(DeleteSubject(self._subject(call), call.flag("permanent")))

    # ---- schemas

    def schemas(self, call: HttpCall) -> HttpAnswer:
        wanted = _wanted(call)
        found = self.node.read(
            lambda registry: registry.listed(
                wanted,
                deleted=call.flag("deleted"),
                latest=call.flag("latestOnly"),
                rule_type=call.text("ruleType"),
                aliases=call.flag("aliases"),
            )
        )
        found = [(each, aliases) for each, aliases in found if sees_subject(each.subject)]
        return HttpAnswer.of([described(each, aliases=aliases) for each, aliases in call.page(found)])

    def schema_of_id(self, call: HttpCall) -> HttpAnswer:
        schema_id, subject = _schema_id(call.params[0]), call.optional("subject")
        if not call.text("format") and not call.flag("fetchMaxId"):
            return self._by_id(call, schema_id, subject)
        stored = self._seen(self.node.read(lambda registry: registry.by_id(schema_id, subject)), schema_id)
        text = self._text(call, stored)
        max_id = (
            self.node.read(lambda registry: registry.max_id(subject)) if call.flag("fetchMaxId") else None
        )
        return HttpAnswer.of(schema(stored, text=text, with_place=_is_named(subject), max_id=max_id))

    def _by_id(self, call: HttpCall, schema_id: int, subject: str | None) -> HttpAnswer:
        stored = self._seen(self.node.read(lambda registry: registry.by_id(schema_id, subject)), schema_id)
        if _is_named(subject):
            return HttpAnswer.of(schema(stored, with_place=True))
        key = ("id", (names.context_of(stored.subject), schema_id))
        return self._kept(key, stored, schema).answer(call, _FOR_EVER)

    def _kept(
        self, key: tuple[str, object], stored: SchemaStored, told: Callable[[SchemaStored], Any]
    ) -> Ready:
        """Return the cached bytes of an answer, valid while the version is the same object."""
        found = self._ready.get(key)
        if found is not None and found[0] is stored:
            return found[1]
        ready = Ready.of(told(stored))
        self._ready.put(key, (stored, ready), len(ready.body) + 500)
        return ready

    def text_of_id(self, call: HttpCall) -> HttpAnswer:
        stored = self._of_id(call)
        return HttpAnswer(self._text(call, stored).encode())

    def subjects_of_id(self, call: HttpCall) -> HttpAnswer:
        return HttpAnswer.of(call.page(list(dict.fromkeys(each.subject for each in self._uses(call)))))

    def versions_of_id(self, call: HttpCall) -> HttpAnswer:
        uses = [{"subject": each.subject, "version": each.version} for each in self._uses(call)]
        return HttpAnswer.of(call.page(uses))

    def _of_id(self, call: HttpCall) -> SchemaStored:
        schema_id, subject = _schema_id(call.params[0]), call.optional("subject")
        return self._seen(self.node.read(lambda registry: registry.by_id(schema_id, subject)), schema_id)

    def _uses(self, call: HttpCall) -> list[SchemaStored]:
        self._of_id(call)
        schema_id, subject, deleted = (
            _schema_id(call.params[0]),
            call.optional("subject"),
            call.flag("deleted"),
        )
        uses = self.node.read(lambda registry: registry.uses_of(schema_id, subject=subject, deleted=deleted))
        seen = (each for each in uses if sees_subject(each.subject))
        return sorted(seen, key=lambda each: (each.subject, each.version))

    def schema_of_guid(self, call: HttpCall) -> HttpAnswer:
        stored = self._of_guid(call.params[0])[0]
        if call.text("format"):
            return HttpAnswer.of(schema(stored, text=self._text(call, stored)))
        return self._kept(("guid", call.params[0]), stored, schema).answer(call, _FOR_EVER)

    def ids_of_guid(self, call: HttpCall) -> HttpAnswer:
        found = self._of_guid(call.params[0])
        return HttpAnswer.of(
            [{"context": names.context_of(each.subject), "id": each.schema_id} for each in found]
        )

    def _of_guid(self, guid: str) -> list[SchemaStored]:
        """Return the schemas of a GUID that the caller may see, one per context.

        Raises RequestRefused 40403 for none.
        """

        def every(registry: Registry) -> list[SchemaStored]:
            return [registry.contexts[context].ids[number] for context, number in registry.ids_of_guid(guid)]

        found: list[SchemaStored] = []
        for each in self.node.read(every):
            with suppress(RequestRefused):
                found.append(self._seen(each, guid))
        if not found:
            raise schema_not_found(guid)
        return found

    # ---- settings and modes

    def settings(self, call: HttpCall) -> HttpAnswer:
        subject = _place(call)

        def found(registry: Registry) -> dict[str, Any]:
            place = names.place(subject)
            if place is None or call.flag("defaultToGlobal"):
                return registry.settings(place)
            own = registry.levels.get(place)
            if own is None:
                raise RequestRefused(
                    404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
                )
            return settings_json(own)

        return HttpAnswer.of(self.node.read(found))

    def set_settings(self, call: HttpCall) -> HttpAnswer:
        return self._submit(SetLevel(_place(call), call.json()))

    def unset_settings(self, call: HttpCall) -> HttpAnswer:
        return self._submit(SetLevel(_place(call), None))

    def mode(self, call: HttpCall) -> HttpAnswer:
        subject = _place(call)

        def found(registry: Registry) -> str:
            place = names.place(subject)
            if place is None or call.flag("defaultToGlobal"):
                return registry.mode_of(place)
            own = registry.modes.get(place)
            if own is None:
                raise RequestRefused(
                    404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
                )
            return own.mode or DEFAULT_MODE

        return HttpAnswer.of({"mode": self.node.read(found)})

    def set_mode(self, call: HttpCall) -> HttpAnswer:
        mode = call.json().get("mode")
        asked = mode.upper() if isinstance(mode, str) else ""
        command = SetMode(_place(call), asked, call.flag("force"), call.flag("recursive"))
        return self._submit(command, lambda answer: {"mode": answer})

    def unset_mode(self, call: HttpCall) -> HttpAnswer:
        command = SetMode(_place(call), None, recursive=call.flag("recursive"))
        return self._submit(command, lambda answer: {"mode": answer})

    # ---- compatibility, contexts, the server

    def compatible(self, call: HttpCall) -> HttpAnswer:
        body = call.json()
        command = self._command(call, body)
        if not command.schema.strip():
            raise RequestRefused(422, 42201, "Empty schema")
        command = self._with_tags(command, body)
        version = call.params[1] if len(call.params) > 1 else None
        reasons = [str(reason) for reason in self.node.incompatibilities(command, version)]
        violations = self.node.violations(command)
        reasons += [str(each) for each in violations if each.severity == "block"]
        answer: dict[str, Any] = {"is_compatible": not reasons}
        if call.flag("verbose"):
            warned = [each for each in violations if each.severity != "block"]
            said = [*warned, *(self.node.remarks(command) if version is None else ())]
            answer["messages"] = reasons + [f"warning: {each}" for each in said]
        return HttpAnswer.of(answer)

    def contexts(self, call: HttpCall) -> HttpAnswer:
        prefix = call.text("contextPrefix")
        found = self.node.read(_visible_contexts)
        return HttpAnswer.of(call.page([each for each in found if each.startswith(prefix)]))

    def delete_context(self, call: HttpCall) -> HttpAnswer:
        _, position = self.node.submit(DeleteContext(names.context_named(call.params[0])))
        return HttpAnswer(b"", 204, [], position)

    def cluster_id(self, _call: HttpCall) -> HttpAnswer:
        clusters = {"kafka-cluster": "", "schema-registry-cluster": "hub"}
        return HttpAnswer.of({"id": "", "scope": {"path": [], "clusters": clusters}})


def _denied(error: HubError) -> HttpAnswer:
    """Return Confluent's answer for a forbidden or unauthenticated request."""
    status = 401 if isinstance(error, Unauthenticated) else 403
    hint = f": {error.hint}" if error.hint else ""
    return HttpAnswer.error(status, status * 100 + 1, f"{error.message}{hint}")


def _visible_contexts(registry: Registry) -> list[str]:
    """Return the contexts' names; with access control, the default one and those with a visible subject."""
    found = registry.context_names()
    if CALLER.get() is None:
        return found
    seen = {names.context_of(each) for each in registry.subjects if sees_subject(each)}
    return [each for each in found if each in seen or each == names.DEFAULT_CONTEXT]


def _caller(call: HttpCall) -> PolicyCaller:
    """Return who registers: the authenticated user, with their groups as teams.

    Without access control, the headers of the proxy: ``Hub-Principal`` and ``Hub-Teams`` (separated by
    commas).
    """
    asks = CALLER.get()
    if asks is not None:
        return PolicyCaller(f"User:{asks.name}" if asks.name else "", asks.groups)
    principal = call.headers.get(b"hub-principal", b"").decode("utf-8", "replace")
    teams = call.headers.get(b"hub-teams", b"").decode("utf-8", "replace")
    return PolicyCaller(principal, frozenset(each.strip() for each in teams.split(",") if each.strip()))


def in_context(call: HttpCall) -> None:
    """Rewrite a call below ``/contexts/{ctx}`` as Confluent's filter does: subject ``s`` becomes
    ``:.ctx:s``.
    """
    if len(call.segments) < 3 or call.segments[0] != "contexts":
        return
    context = names.context_named(call.segments[1])
    call.segments = call.segments[2:]
    around = f":{context}:"

    def inside(name: str) -> str:
        return name if name.startswith((":.", names.EVERY_CONTEXT)) else around + name

    match call.segments:
        case ["config" | "mode"]:
            call.segments.append(around)
        case ["config" | "mode" | "subjects", name, *_]:
            call.segments[1] = inside(name)
        case ["compatibility", "subjects", name, *_]:
            call.segments[2] = inside(name)
        case ["schemas", "ids", *_]:
            call.query["subject"] = [inside(call.text("subject"))]
        case ["schemas" | "subjects"]:
            call.query["subjectPrefix"] = [inside(each) for each in call.query.get("subjectPrefix", [""])]


def _place(call: HttpCall) -> str | None:
    return call.params[0] if call.params else None


def _is_named(subject: str | None) -> bool:
    """Return True if ``subject`` names a subject, not only a context."""
    return subject is not None and bool(names.split(subject)[1])


def _schema_id(text: str) -> int:
    """Parse a schema id. Raises RequestRefused 404 for an impossible one, as for an unknown path."""
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > HIGHEST_ID:
        raise RequestRefused(404, 404, "HTTP 404 Not Found")
    return int(text)


def _wanted(call: HttpCall) -> Callable[[str], bool]:
    """Return a filter of subjects by the request's prefixes; ``:*:``, the default, matches every context."""
    prefixes = call.query.get("subjectPrefix", [names.EVERY_CONTEXT])

    def begins(subject: str, prefix: str) -> bool:
        if prefix.startswith(names.EVERY_CONTEXT):
            return names.split(subject)[1].startswith(prefix[len(names.EVERY_CONTEXT) :])
        if prefix.startswith(":."):
            context, name = names.split(prefix)
            return names.context_of(subject) == context and names.split(subject)[1].startswith(name)
        return subject.startswith(prefix)

    return lambda subject: any(begins(subject, prefix) for prefix in prefixes)


def _after_subject(command: RegisterSchema) -> tuple[Any, ...]:
    return (
        command.schema,
        command.schema_type,
        command.references,
        command.metadata,
        command.rule_set,
        command.normalize,
    )

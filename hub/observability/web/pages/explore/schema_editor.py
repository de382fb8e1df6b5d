"""[core] Editor of a schema: the newest version as a draft, the check of a draft, and the equal command.

A draft is checked before it is registered: format, compatibility by the subject's level, policies, changes,
and who reads the topic. A registration names the digest of its check, so it is refused if another newest
version exists by then. The registry decides again when it registers.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import Final

from hub.caller import CALLER
from hub.errors import CallerError, Conflict, HubError
from hub.observability.web.pages.estate import RegistersSchemas
from hub.observability.web.pages.explore.schemas import (
    NO_IMPACT,
    SubjectComparison,
    SubjectImpact,
    compared,
    needed,
    pretty,
)
from hub.schema_registry.model import subject_names
from hub.schema_registry.model.facts import Reference, SchemaStored
from hub.schema_registry.registry.commands import RegisterSchema
from hub.schema_registry.registry.errors import RequestRefused
from hub.schema_registry.registry.rulebook import NOBODY, PolicyCaller
from hub.schema_registry.registry.state_machine import Registry
from hub.topics.tree.confirmed_plans import plan_digest

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
SUFFIXES: Final = {"AVRO": "avsc", "JSON": "json", "PROTOBUF": "proto"}
MOST_SCHEMA_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class SchemaDraft:
    """A schema that somebody edits."""

    subject: str
    text: str = ""
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()

    @property
    def command(self) -> str:
        """Return a command that registers it: of a file, or over HTTP where it has references."""
        if not self.references:
            file = f"draft.{SUFFIXES.get(self.schema_type, 'avsc')}"
            return shlex.join(["hub", "schema", "register", self.subject, file])
        body = {
            "schema": self.text,
            "schemaType": self.schema_type,
            "references": [each.as_json() for each in self.references],
        }
        url = f"http://localhost:8080/subjects/{self.subject}/versions"
        arguments = [
            "curl",
            "-X",
            "POST",
            url,
            "-H",
            "content-type: application/json",
            "-d",
            json.dumps(body),
        ]
        return shlex.join(arguments)


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Result of a check.

    ``known``: the version that has this schema already. ``invalid``: error of a text that cannot be parsed.
    ``refusals``: incompatibilities and violated policies that block it; ``warnings``: others. ``digest``: see
    ``digest_of``.
    """

    digest: str
    known: int | None = None
    invalid: str = ""
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    comparison: SubjectComparison | None = None
    impact: SubjectImpact = NO_IMPACT

    @property
    def may_register(self) -> bool:
        return not (self.invalid or self.refusals or self.known is not None)


@dataclass(frozen=True, slots=True)
class SchemaEditor:
    """Values of the page. ``newest``: the subject's newest version, None for a new subject. ``registered``:
    (version, id) that was just made. ``error``: why a registration was refused."""

    draft: SchemaDraft
    topic: str
    level: str
    newest: int | None = None
    check: SchemaCheck | None = None
    registered: tuple[int, int] | None = None
    error: HubError | None = None
    command: str = ""


def draft_of(subject: str, text: str, schema_type: str, references: str) -> SchemaDraft:
    """Return the draft of a form. ``references``: lines NAME SUBJECT VERSION. Raises CallerError."""
    if schema_type not in TYPES:
        raise CallerError(
            f'schema type "{schema_type[:30]}" is unknown', hint=f"use one of: {', '.join(TYPES)}"
        )
    found = []
    for line in references.splitlines():
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 3 or not parts[2].isdecimal():
            raise CallerError(
                f'reference "{line[:80]}" is not complete', hint="one a line: NAME SUBJECT VERSION"
            )
        found.append(Reference(parts[0], parts[1], int(parts[2])))
    return SchemaDraft(subject, text.replace("\r\n", "\n"), schema_type, tuple(found))


def newest_of(registry: Registry, subject: str) -> SchemaStored | None:
    """Return the newest version of a subject that is not deleted; None if it has none."""
    return next(iter(registry.live(subject_names.normal(subject))[-1:]), None)


def opened(registry: Registry, subject: str, draft: SchemaDraft | None = None) -> SchemaEditor:
    """Return the page of a subject, with its newest version as the draft unless one is given."""
    name = subject_names.normal(subject)
    newest = newest_of(registry, name)
    if draft is None:
        draft = SchemaDraft(subject)
        if newest is not None:
            draft = SchemaDraft(subject, pretty(newest), newest.schema_type, tuple(newest.references))
    version = None if newest is None else newest.version
    return SchemaEditor(
        draft,
        registry.rulebook.effective(name).topic,
        registry.level_of(name),
        version,
        command=draft.command,
    )


def registration(draft: SchemaDraft) -> RegisterSchema:
    """Return the registry's command of a draft, with the caller of the request."""
    asks = CALLER.get()
    caller = NOBODY if asks is None else PolicyCaller(f"User:{asks.name}" if asks.name else "", asks.groups)
    return RegisterSchema(
        subject_names.normal(draft.subject), draft.text, draft.schema_type, draft.references, caller=caller
    )


def checked(node: RegistersSchemas, draft: SchemaDraft) -> SchemaCheck:
    """Check a draft; registers nothing. Raises PeerError."""
    command = registration(draft)
    newest = node.read(lambda registry: newest_of(registry, command.subject))
    digest = digest_of(draft, newest)
    try:
        if not draft.text.strip():
            return SchemaCheck(digest, invalid="The schema is empty.")
        known = node.lookup(command)
        if known is not None:
            return SchemaCheck(digest, known.version)
        problems = [str(each) for each in node.incompatibilities(command, None)]
        broken = node.violations(command)
        remarks = [str(each) for each in node.remarks(command)]
    except RequestRefused as refused:
        return SchemaCheck(digest, invalid=refused.message)
    blocking = [str(each) for each in broken if each.severity == "block"]
    warned = [str(each) for each in broken if each.severity != "block"]
    return SchemaCheck(
        digest,
        None,
        "",
        tuple([*problems, *blocking][:100]),
        tuple([*warned, *remarks][:100]),
        _compared(node, draft, newest),
    )


def _compared(
    node: RegistersSchemas, draft: SchemaDraft, newest: SchemaStored | None
) -> SubjectComparison | None:
    if newest is None:
        return None
    new = replace(
        newest,
        version=newest.version + 1,
        schema=draft.text,
        schema_type=draft.schema_type,
        references=draft.references,
    )
    state = node.read(lambda registry: needed(registry, [newest, new]))
    return compared(new, newest, state)


def digest_of(draft: SchemaDraft, newest: SchemaStored | None) -> str:
    """Return a digest of a draft and of the newest version that it was checked against."""
    against = "" if newest is None else f"{newest.version} {newest.schema_id}"
    parts = [draft.subject, draft.text, draft.schema_type, repr(draft.references), against]
    return plan_digest(parts)


def require_checked(check: SchemaCheck, digest: str | None, subject: str) -> None:
    """Raise Conflict (HUB-1941) where ``digest`` is of another draft or of another newest version. ``digest``
    None: the caller saw no check."""
    if digest is not None and digest != check.digest:
        raise Conflict(
            f'subject "{subject}": the draft or the newest version has changed since the check',
            hint="nothing was registered; look at the new check",
            code="HUB-1941",
        )

"""[edge] httpx: read a whole registry, and write to it with references and metadata.

Works with any registry that has Confluent's API. ``registry_client.py`` serves callers that know a subject
or an id; this module serves callers that need the state as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx2 as httpx

from hub.errors import NotFound, PeerError
from hub.schema_registry.client.http import RegistryHttp, quoted, refusals_in
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.snapshot import (
    ParsedSchema,
    RegistryState,
    SubjectState,
    SubjectVersion,
    parsed_version,
)

_PAGE = 1_000
_MOST_PAGES = 1_000


class RemoteRegistry(RegistryHttp):
    """Connection to one registry. Each request ends within ``timeout_s``.

    Raises NotFound (404), Conflict (409), CallerError (refused), PeerError (no answer).
    """

    def __init__(
        self, url: str, timeout_s: float = 15.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        super().__init__(url, timeout_s, transport)

    def state(
        self, subjects: Iterable[str] = (), progress: Callable[[int, int], None] = lambda _done, _all: None
    ) -> RegistryState:
        """Return every version of every subject, and the effective levels of ``subjects`` and their aliases'
        targets.

        All other subjects have the global level.
        """
        every = self._all(deleted="true")
        live = {(each["subject"], each["version"]) for each in self._all()}
        subject_versions: defaultdict[str, list[SubjectVersion]] = defaultdict(list)
        for each in every:
            subject_versions[each["subject"]].append(
                _version(each, (each["subject"], each["version"]) not in live)
            )
        above = self.request("GET", "/config")
        settings: dict[str, Mapping[str, Any]] = {}

        def ask(name: str) -> None:
            try:
                settings[name] = self.request("GET", f"/config/{quoted(name)}", defaultToGlobal="true")
            except NotFound:  # older registries return 404 for the level of an unknown subject
                settings[name] = above

        wanted = list(dict.fromkeys(subjects))
        for done, name in enumerate(wanted, 1):
            ask(name)
            progress(done, len(wanted))
        aliases = {
            name: names.beside(name, str(each["alias"]))
            for name, each in settings.items()
            if each.get("alias")
        }
        for name in aliases.values():
            if name not in settings:
                ask(name)
        return RegistryState(
            {
                name: SubjectState(
                    tuple(sorted(subject_versions[name], key=lambda each: each.version)),
                    _level(settings.get(name, above)),
                    settings.get(name, above).get("defaultMetadata"),
                    settings.get(name, above).get("overrideMetadata"),
                )
                for name in sorted({*subject_versions, *settings})
            },
            _level(above),
            aliases,
        )

    def latest(self) -> list[tuple[str, SubjectVersion]]:
        """Return the latest version of every subject, sorted by name."""
        newest: dict[str, SubjectVersion] = {}
        for each in self._all(latestOnly="true"):
            version = _version(each, False)
            if each["subject"] not in newest or newest[each["subject"]].version < version.version:
                newest[each["subject"]] = version
        return sorted(newest.items())

    def levels(self, subjects: Sequence[str]) -> dict[str, str]:
        """Return the effective levels of subjects: one request to the hub's own registry, one per subject to
        others.
        """
        try:
            found: Mapping[str, str] = self.request("GET", "/api/levels")["levels"]
        except NotFound:
            found = {}
        return {
            each: found.get(each)
            or _level(self.request("GET", f"/config/{quoted(each)}", defaultToGlobal="true"))
            for each in subjects
        }

    def numbers(self, subject: str) -> list[int]:
        """Return the subject's versions that are not deleted, oldest first. Raises NotFound."""
        return sorted(int(each) for each in self.request("GET", f"/subjects/{quoted(subject)}/versions"))

    def version(self, subject: str, number: int) -> SubjectVersion:
        """Return one version, deleted or not. Raises NotFound."""
        path = f"/subjects/{quoted(subject)}/versions/{number}"
        return _version(self.request("GET", path, deleted="true"), False)

    def parsed(self, version: SubjectVersion) -> ParsedSchema:
        """Parse a version with all its references. Raises InvalidSchema."""
        subject_versions: dict[str, dict[int, SubjectVersion]] = {}
        left = list(version.references)
        while left:
            reference = left.pop()
            known = subject_versions.setdefault(reference.subject, {})
            if reference.version not in known:
                known[reference.version] = self.version(reference.subject, reference.version)
                left += known[reference.version].references
        subjects = {name: SubjectState(tuple(each.values())) for name, each in subject_versions.items()}
        return parsed_version(RegistryState(subjects), version)

    def with_id(self, schema_id: int) -> SubjectVersion:
        """Return the schema with an id. Raises NotFound."""
        answer = self.request("GET", f"/schemas/ids/{schema_id}")
        return _version({"version": 0, "id": schema_id, **answer}, False)

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: Sequence[Reference],
        metadata: Mapping[str, Any] | None,
    ) -> int:
        """Register the schema; return its version."""
        body = _body(subject, text, schema_type, references, metadata)
        answer = self.request("POST", f"/subjects/{quoted(subject)}/versions", body)
        if "version" not in answer:  # registries before 8.0 answer with the id alone
            answer = self.request("POST", f"/subjects/{quoted(subject)}", body)
        return int(answer["version"])

    def every(self) -> list[tuple[str, SubjectVersion]]:
        """Return every version of every subject in all contexts, deleted ones included.

        Sends two requests.
        """
        live = {(each["subject"], each["version"]) for each in self._all()}
        return [
            (each["subject"], _version(each, (each["subject"], each["version"]) not in live))
            for each in self._all(deleted="true")
        ]

    def default_level(self) -> str:
        """Return the compatibility level of subjects that have none of their own."""
        return _level(self.request("GET", "/config"))

    def set_default_level(self, level: str) -> None:
        """Set the compatibility level of subjects that have none of their own."""
        self.request("PUT", "/config", {"compatibility": level})

    def own_settings(self, subject: str) -> dict[str, Any]:
        """Return the subject's own settings, without inherited ones; empty when it has none."""
        try:
            return dict(self.request("GET", f"/config/{quoted(subject)}"))
        except NotFound:
            return {}

    def set_settings(self, subject: str, settings: Mapping[str, Any]) -> None:
        """Change the given settings (``compatibility``, ``normalize``, ``alias``, …); others stay."""
        self.request("PUT", f"/config/{quoted(subject)}", dict(settings))

    def unset_settings(self, subject: str) -> None:
        """Remove the subject's own settings. Raises NotFound."""
        self.request("DELETE", f"/config/{quoted(subject)}")

    def own_mode(self, subject: str) -> str | None:
        """Return the subject's own mode; None when it has none."""
        try:
            return str(self.request("GET", f"/mode/{quoted(subject)}")["mode"])
        except NotFound:
            return None

    def set_mode(self, subject: str, mode: str | None) -> None:
        """Set the subject's own mode, or remove it with None."""
        path = f"/mode/{quoted(subject)}"
        if mode is None:
            self.request("DELETE", path)
        else:
            self.request("PUT", path, {"mode": mode}, force="true")

    def import_version(self, subject: str, version: SubjectVersion) -> None:
        """Store a version with its number and id; the subject must be in IMPORT mode."""
        body = _body(subject, version.text, version.schema_type, version.references, version.metadata)
        rules = {} if version.rule_set is None else {"ruleSet": version.rule_set}
        numbers = {"id": version.schema_id, "version": version.version}
        self.request("POST", f"/subjects/{quoted(subject)}/versions", {**body, **rules, **numbers})

    def delete_version(self, subject: str, number: int) -> None:
        """Soft-delete a version: its id keeps its schema. Raises NotFound."""
        self.request("DELETE", f"/subjects/{quoted(subject)}/versions/{number}")

    def set_level(self, subject: str, level: str) -> None:
        self.request("PUT", f"/config/{quoted(subject)}", {"compatibility": level})

    def incompatibilities(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: Sequence[Reference],
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Return the reasons why the registry would refuse the schema with this metadata; [] when it would
        not.
        """
        return refusals_in(
            self.request(
                "POST",
                f"/compatibility/subjects/{quoted(subject)}/versions",
                _body(subject, text, schema_type, references, metadata),
                verbose="true",
            )
        )

    def _all(self, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in range(_MOST_PAGES):
            some = self.request("GET", "/schemas", offset=str(page * _PAGE), limit=str(_PAGE), **query)
            found += some
            if len(some) != _PAGE:  # a registry without paging answers with everything
                return found
        raise PeerError(
            f'schema registry at "{self.url}": more than {_MOST_PAGES * _PAGE} schemas', code="HUB-3033"
        )


def _level(settings: Mapping[str, Any]) -> str:
    return str(settings.get("compatibilityLevel") or settings.get("compatibility") or "BACKWARD")


def _version(answer: Mapping[str, Any], deleted: bool) -> SubjectVersion:
    subject = str(answer.get("subject") or "")
    return SubjectVersion(
        int(answer["version"]),
        str(answer["schema"]),
        str(answer.get("schemaType") or "AVRO"),
        tuple(
            Reference(str(each["name"]), names.beside(subject, str(each["subject"])), int(each["version"]))
            for each in answer.get("references") or ()
        ),
        answer.get("metadata"),
        int(answer["id"]),
        deleted,
        answer.get("ruleSet"),
    )


def _body(
    subject: str,
    text: str,
    schema_type: str,
    references: Sequence[Reference],
    metadata: Mapping[str, Any] | None,
) -> dict[str, Any]:
    spelled = [replace(each, subject=names.written_in(subject, each.subject)) for each in references]
    return {
        "schema": text,
        **({"schemaType": schema_type} if schema_type != "AVRO" else {}),
        **({"references": [each.as_json() for each in spelled]} if spelled else {}),
        **({"metadata": metadata} if metadata is not None else {}),
    }

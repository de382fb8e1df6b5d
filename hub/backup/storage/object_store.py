"""[edge] Objects by name, in a folder or in S3. An object appears whole or not at all.

S3 is pyarrow's file system: its upload of an object is atomic. Credentials and region come from the usual
variables (``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``) or the machine's
role.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from hub.errors import CallerError, ConfigError, Conflict, HubError, NotFound, PeerError
from hub.files import read_bytes, sync

T = TypeVar("T")
UNUSABLE = "HUB-1801"


class ObjectStore(Protocol):
    """Objects by name; names have ``/`` between their parts. ``place``: for messages and to find it again.

    Raises PeerError (HUB-3802) when the storage does not answer or is full, CallerError (HUB-1801) when it
    refuses the access.
    """

    place: str

    def put(self, name: str, content: bytes) -> None: ...

    def get(self, name: str) -> bytes:
        """Return an object. Raises NotFound."""
        ...

    def names(self, under: str) -> list[str]:
        """Return the names that begin with ``under`` and a slash, ascending."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object; nothing when there is none."""
        ...

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the store for one writer. Yields whether that keeps others out (S3 does not). Raises Conflict
        (HUB-1804) when another process holds it.
        """
        ...


def open_store(place: str, noun: str = "backup") -> ObjectStore:
    """Return the store of ``s3://bucket/path`` or of a folder. Raises ConfigError (HUB-1801). ``noun``: what
    its messages call the objects.
    """
    if place.startswith("s3://"):
        return S3Store(place, noun)
    if "://" in place:
        raise ConfigError(
            f'"{place}" is not a place for a {noun}',
            hint="write a folder, or s3://BUCKET/PATH",
            code=UNUSABLE,
        )
    return FolderStore(Path(place).expanduser().absolute(), noun)


class FolderStore:
    """Objects as files of a folder."""

    def __init__(self, folder: Path, noun: str = "backup") -> None:
        self.folder, self.place, self.noun = folder, str(folder), noun

    def put(self, name: str, content: bytes) -> None:
        path = self.folder / name
        part = path.with_name(f".{path.name}.part")

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            part.replace(path)
            sync(path.parent)

        try:
            self._call(write, name)
        except HubError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise

    def get(self, name: str) -> bytes:
        return self._call(lambda: read_bytes(self.folder / name), name)

    def names(self, under: str) -> list[str]:
        def walk() -> list[str]:
            paths = (self.folder / under).rglob("*")
            files = (each for each in paths if each.is_file() and not each.name.startswith("."))
            return sorted(each.relative_to(self.folder).as_posix() for each in files)

        return self._call(walk, under)

    def delete(self, name: str) -> None:
        self._call(lambda: (self.folder / name).unlink(missing_ok=True), name)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        def lock() -> int:
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o600)

        file = self._call(lock, ".lock")
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Conflict(
                    f'another run writes to the {self.noun} "{self.place}"',
                    hint="wait until it has ended",
                    code="HUB-1804",
                ) from None
            yield True
        finally:
            os.close(file)

    def _call(self, call: Callable[[], T], name: str) -> T:
        try:
            return call()
        except FileNotFoundError:
            raise NotFound(f'{self.noun} "{self.place}" has no object "{name}"', code="HUB-1805") from None
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise CallerError(
                f'{self.noun} "{self.place}": "{name}": {error.strerror}',
                hint="name a folder that this user may read and write",
                code=UNUSABLE,
            ) from None
        except OSError as error:
            raise _away(self.noun, self.place, name, error.strerror or str(error)) from None


class S3Store:
    """Objects of a bucket below a path."""

    def __init__(self, place: str, noun: str = "backup") -> None:
        from pyarrow.fs import FileSystem

        self.noun = noun
        self.place = place.split("?", 1)[0].rstrip("/")
        try:
            self._files, root = FileSystem.from_uri(place)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f'"{self.place}" is not a place for a {noun}: {error}',
                hint="write s3://BUCKET/PATH; credentials come from AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY",
                code=UNUSABLE,
            ) from None
        self._root = root.rstrip("/")

    def put(self, name: str, content: bytes) -> None:
        def write() -> None:
            with self._files.open_output_stream(f"{self._root}/{name}") as stream:
                stream.write(content)

        self._call(write, name)

    def get(self, name: str) -> bytes:
        def read() -> bytes:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read())

        return self._call(read, name)

    def names(self, under: str) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(f"{self._root}/{under}", allow_not_found=True, recursive=True)
        found = self._call(lambda: self._files.get_file_info(selector), under)
        return sorted(each.path[len(self._root) + 1 :] for each in found if each.type == FileType.File)

    def delete(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            self._call(lambda: self._files.delete_file(f"{self._root}/{name}"), name)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        yield False

    def _call(self, call: Callable[[], T], name: str) -> T:
        try:
            return call()
        except FileNotFoundError:
            raise NotFound(f'{self.noun} "{self.place}" has no object "{name}"', code="HUB-1805") from None
        except OSError as error:
            text = str(error)
            if "ACCESS_DENIED" in text or "NO_SUCH_BUCKET" in text or "INVALID" in text:
                raise CallerError(
                    f'{self.noun} "{self.place}": "{name}": {text}',
                    hint="check the bucket's name, the credentials and their rights to list, "
                    "read, write and delete",
                    code=UNUSABLE,
                ) from None
            raise _away(self.noun, self.place, name, text) from None


def _away(noun: str, place: str, name: str, why: str) -> PeerError:
    return PeerError(
        f'{noun} "{place}": "{name}": {why}',
        hint="check the storage and its free space, then run the command again: it continues where it was",
        code="HUB-3802",
    )

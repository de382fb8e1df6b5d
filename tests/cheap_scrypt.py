"""Passwords that cost nothing.
The real cost is paid where it is the claim: tests/unit/access/test_secrets.py."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hub.access import secrets


@contextmanager
def cheap_scrypt() -> Iterator[None]:
    """Hash and check passwords at the least cost that scrypt has. The lines of access.yaml keep their form,
    and so keep their limits; a line that is made here fits its password only while this lasts.
    """

    def least(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
        return hashlib.scrypt(password.encode(), salt=salt, n=2, r=r, p=1, dklen=32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_scrypt", least)
        yield

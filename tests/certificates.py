"""Keys and certificates of this machine, for servers and clients of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str, of: str | None = None) -> Path:
    """Create a key and a self-signed certificate for ``of`` (its common name, by default ``name``) and
    127.0.0.1: ``name.key`` and ``name.pem``; ``name.both`` has both, as brokers need them.
    """
    key, made = folder / f"{name}.key", folder / f"{name}.pem"
    if not made.exists():
        subject = ["-subj", f"/CN={of or name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", str(key), "-out", str(made)]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
            check=True,
            capture_output=True,
        )
        (folder / f"{name}.both").write_text(key.read_text() + made.read_text())
    return made

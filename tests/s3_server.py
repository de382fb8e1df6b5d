"""An S3 server for tests: moto's, in an environment of its own,
which is made from locks/moto.txt when it is first used."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import patient
from pipeline import wait_until
from ports import free_ports

ROOT = Path(__file__).parents[1]
_LOCK = ROOT / "locks" / "moto.txt"
_SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"


@contextmanager
def s3_server(log: Path, bucket: str) -> Iterator[Mapping[str, str]]:
    """Run a server with one bucket; yields the variables with which clients reach it. Skips where the
    packages cannot be fetched.
    """
    python = _environment()
    (port,) = free_ports(1)
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(python), "-m", "moto.server", "-p", str(port)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: _make_bucket(port, bucket), 60.0, lambda: log.read_text()[-2_000:])
        yield {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
    finally:
        server.kill()
        server.wait(10)


def _environment() -> Path:
    """Return the Python of moto's environment; make it if it is missing or the lock has changed."""
    folder = ROOT / ".cache" / f"moto-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if python.exists():
        return python
    uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
    new = folder.with_name(f"{folder.name}.{os.getpid()}")
    steps = (
        [uv, "venv", "--quiet", "--clear", str(new)],
        [uv, "pip", "install", "--quiet", "--python", str(new), "--require-hashes", "-r", str(_LOCK)],
    )
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=patient(120.0), check=False)
        except OSError as error:
            pytest.skip(f"moto's server cannot be installed: {error}")
        if done.returncode:
            pytest.skip(f"moto's server cannot be installed: {done.stderr[-300:]}")
    if not python.exists():
        new.replace(folder)
    return python


def _make_bucket(port: int, bucket: str) -> bool:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT", data=b"")
    asked.add_header("Authorization", _SIGNED)
    try:
        return bool(urllib.request.urlopen(asked, timeout=5).status == 200)
    except OSError:
        return False

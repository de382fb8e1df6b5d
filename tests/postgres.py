"""A real Postgres for tests: a server in a folder of its own, as many databases in it as tests ask for."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from patience import patient
from ports import free_ports
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

BINARIES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))


class Postgres:
    """A Postgres server in a folder of its own. Postgres refuses to run as root, so root starts it as the
    user "nobody".
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hub-postgres-"))
        self.port = free_ports(1)[0]
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self.user is not None:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self._run(
            "initdb", "-D", str(self.folder / "data"), "-U", "hub", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.options: dict[str, str] = {}  # settings of the server, from its next start on

    def _command(self, name: str, *arguments: str) -> list[str]:
        return [f"{BINARIES[-1]}/{name}", *arguments]

    def _identity(self) -> dict[str, Any]:
        if self.user is None:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": [], "cwd": self.folder}

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(name, *arguments),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **self._identity(),
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        command = self._command(
            "postgres",
            "-D",
            str(self.folder / "data"),
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-k",
            str(self.folder),
            *(f"--{name}={value}" for name, value in self.options.items()),
        )
        engine = create_engine(self.url("postgres"))
        deadline = time.monotonic() + patient(60)
        self.process = self._spawn(command)
        while True:
            try:
                with engine.connect():
                    break
            except OperationalError:
                assert time.monotonic() < deadline, (self.folder / "postgres.log").read_text()
                time.sleep(0.1)
            if (
                self.process.poll() is not None
            ):  # a child of one that was killed is not gone yet, and holds its memory
                self.process = self._spawn(command)
        engine.dispose()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "postgres.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, **self._identity())

    def kill(self) -> None:
        """-9 to the postmaster; its children end by themselves when they notice."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://hub@127.0.0.1:{self.port}/{database}"

    def database(self, name: str) -> str:
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}"'))
        engine.dispose()
        return self.url(name)

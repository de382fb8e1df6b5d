"""Receivers of notifications, for tests: a webhook that records request bodies, and a minimal SMTP server."""

from __future__ import annotations

import base64
import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from patience import wait_until


@dataclass
class Webhook:
    """``answers``: status codes of the next requests, then 200. ``delay_s``: before each answer."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    delay_s: float = 0.0

    def wait(self, count: int, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Wait for at least ``count`` bodies."""
        until(lambda: len(self.bodies) >= count, seconds, lambda: f"{len(self.bodies)}: {self.bodies}")
        return self.bodies


def until(done: Callable[[], bool], seconds: float, told: Callable[[], str] = lambda: "") -> None:
    wait_until(done, seconds, told)


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on a free port by this handler; the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A real HTTP server on a free port."""
    known = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(known.delay_s)
            status = known.answers.pop(0) if known.answers else 200
            if status == 200:
                known.headers.append(dict(self.headers.items()))
                known.bodies.append(json.loads(body))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None: ...

    with served(Handler) as url:
        known.url = f"{url}/hook"
        yield known


@dataclass
class Mailbox:
    """``refuse``: answers to RCPT, by beginning of the address."""

    server: str = ""
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    logins: list[str] = field(default_factory=list)


@contextmanager
def smtp(certificate: Path | None = None) -> Iterator[Mailbox]:
    """Serve the part of SMTP (RFC 5321) that a client needs. With a certificate (and its key in the same
    folder): STARTTLS, then a password.
    """
    box = Mailbox()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    class Handler(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")

        def finish(self) -> None:
            super().finish()
            self.connection.close()

        def setup_files(self) -> None:
            self.rfile.close()
            self.wfile.close()
            self.rfile = self.connection.makefile("rb", self.rbufsize)  # type: ignore[assignment]
            self.wfile = self.connection.makefile("wb", 0)  # type: ignore[assignment]

        def handle(self) -> None:
            to: list[str] = []
            self.say("220 test")
            while line := self.rfile.readline():
                verb, _, rest = line.decode().strip().partition(" ")
                match verb.upper():
                    case "EHLO" | "HELO":
                        secure = isinstance(self.connection, ssl.SSLSocket)
                        if certificate is None:
                            self.say("250 test")
                        else:
                            self.say("250-test")
                            self.say("250 AUTH PLAIN" if secure else "250 STARTTLS")
                    case "STARTTLS" if certificate is not None:
                        self.say("220 go on")
                        self.wfile.flush()
                        try:
                            self.connection = context.wrap_socket(self.connection, server_side=True)
                        except OSError:  # the client does not trust the certificate
                            return
                        self.setup_files()
                    case "AUTH":
                        said = base64.b64decode(rest.partition(" ")[2]).decode().replace("\0", "|")
                        box.logins.append(said)
                        self.say("235 fine" if said.endswith("|s3cret") else "535 wrong")
                    case "RCPT":
                        address = rest.partition("<")[2].partition(">")[0]
                        answer = next(
                            (a for start, a in box.refuse.items() if address.startswith(start)), "250 ok"
                        )
                        to += [address] if answer.startswith("250") else []
                        self.say(answer)
                    case "DATA":
                        self.say("354 go on")
                        lines = []
                        while (part := self.rfile.readline()) != b".\r\n":
                            lines.append(part.removeprefix(b".") if part.startswith(b"..") else part)
                        mail = message_from_bytes(b"".join(lines), policy=policy.default)
                        assert isinstance(mail, EmailMessage)
                        box.mails.append(mail)
                        box.recipients.append(to)
                        self.say("250 taken")
                    case "QUIT":
                        self.say("221 bye")
                        return
                    case _:
                        self.say("250 ok")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    box.server = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield box
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

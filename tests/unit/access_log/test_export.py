"""Export of the access log: formats by their standards, real sockets, and positions that skip nothing."""

from __future__ import annotations

import json
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import until, webhook
from certificates import certificate
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from patience import patient
from pydantic import ValidationError

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.chain import LogSigner
from hub.access_log.entry import Entry, Who, decode, encode
from hub.access_log.writer import AccessLog
from hub.api.auditing.export import senders
from hub.api.auditing.export.exporter import AuditExporter, ExportPosition, PositionFile, start_of
from hub.api.auditing.export.formats import ExportedEntry, framed, otlp_logs, syslog_message
from hub.api.auditing.export.senders import sender_of
from hub.config.audit_export import AuditExport
from hub.errors import ConfigError, PeerError
from hub.log import MemoryCluster

# RFC 5424, section 6: header, one structured data element, message.
MESSAGE = re.compile(
    rb"<(\d{1,3})>1 (\S+) (\S{1,255}) (\S{1,48}) (\S{1,128}) ([!-~]{1,32}) "
    rb'\[[!-~]{1,32}((?: [!-~]{1,32}="(?:[^"\\\]]|\\["\\\]])*")*)\] (.*)',
    re.DOTALL,
)


def exported(number: int = 0, who: str = "ana", result: Outcome = Outcome.ok) -> ExportedEntry:
    entry = Entry(LoggedAction.topic_change, result, Who(who, "session", "10.0.0.7"), 1_700_000_000_123)
    value = encode(entry, "c", number, "")
    return ExportedEntry(decode(value, number), value)


def test_syslog_messages_follow_the_rfc() -> None:
    message = syslog_message(exported(who='a"]\\b'), "hub-1", 4711)
    found = MESSAGE.fullmatch(message)
    assert found is not None, message
    assert (found[1], found[4], found[5], found[6]) == (b"110", b"hub", b"4711", b"topic.change")
    assert found[2] == b"2023-11-14T22:13:20.123+00:00"
    assert b'who="a\\"\\]\\\\b"' in found[7]
    assert json.loads(found[8])["data"]["action"] == "topic.change"
    assert syslog_message(exported(result=Outcome.denied), "", 1).startswith(b"<108>1 ")
    assert framed(b"abc") == b"3 abc"


def test_otlp_logs_are_what_a_collector_parses() -> None:
    request = ParseDict(otlp_logs([exported(), exported(1)], "hub-1"), ExportLogsServiceRequest())
    (records,) = [each.scope_logs[0].log_records for each in request.resource_logs]
    assert len(records) == 2 and records[0].time_unix_nano == 1_700_000_000_123_000_000
    assert {each.key: each.value.string_value for each in records[0].attributes}["enduser.id"] == "ana"


@contextmanager
def syslog_server(tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """A TCP server that takes messages with their length before them."""
    taken: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while length := b"".join(iter(lambda: self.rfile.read(1).strip(b" "), b"")):
                taken.append(self.rfile.read(int(length)))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def get_request(self) -> Any:
            connection, address = super().get_request()
            return connection if tls is None else tls.wrap_socket(connection, server_side=True), address

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_address[1], taken
        server.shutdown()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_syslog_over_tcp_and_tls(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = None
    if kind == "tls":
        certificate(tmp_path, "siem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "siem.pem", tmp_path / "siem.key")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "siem.pem"))
        monkeypatch.setattr(senders.ssl, "create_default_context", lambda: trusting)
    with syslog_server(context) as (port, taken):
        sender = senders.SyslogSender("siem", f"{kind}://127.0.0.1:{port}", patient(5.0))
        for numbers in ((0, 1), (2,)):
            sender.send([exported(each) for each in numbers])
        until(lambda: len(taken) == 3, 10.0)
        assert all(MESSAGE.fullmatch(each) for each in taken)
        sender.close()


def test_syslog_over_udp_is_cut_to_a_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(patient(5.0))
        sender = senders.SyslogSender("siem", f"udp://127.0.0.1:{server.getsockname()[1]}", 5.0)
        sender.send([exported()])
        assert MESSAGE.fullmatch(server.recv(65_535))
        sender.close()


def test_a_closed_port_is_an_error_that_may_pass() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    send = sender_of("siem", AuditExport(syslog=f"tcp://127.0.0.1:{port}"), {})
    with pytest.raises(PeerError, match='audit_export "siem"'):
        send([exported()])


def test_a_connection_that_its_peer_closed_loses_nothing() -> None:
    """What was sent into a closed connection is an error, so the batch is sent again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = senders.SyslogSender("siem", f"tcp://127.0.0.1:{server.getsockname()[1]}", patient(5.0))
        sender.send([exported(0)])
        accepted, _ = server.accept()
        accepted.close()

        def fails() -> bool:
            try:
                sender.send([exported(1)])
            except PeerError:
                return True
            return False

        until(fails, 10.0)
        sender.close()


def test_a_target_is_one_of_three_and_its_secret_is_a_variable() -> None:
    for wrong in (
        {},
        {"syslog": "tcp://a:1", "otlp": "http://b"},
        {"syslog": "http://a"},
        {"syslog": "tcp://a:1/path"},
        {"webhook": "https://a", "bearer": "s3cret"},
    ):
        with pytest.raises(ValidationError):
            AuditExport.model_validate(wrong)
    with pytest.raises(ConfigError, match="SIEM_TOKEN is not set"):
        sender_of("siem", AuditExport(webhook="https://a", bearer="${SIEM_TOKEN}"), {})


def test_where_an_export_goes_on() -> None:
    assert start_of(None, "t", 5) == (5, 0)
    assert start_of(ExportPosition("t", 9), "t", 5) == (9, 0)
    assert start_of(ExportPosition("t", 3), "t", 5) == (5, 2)
    assert start_of(ExportPosition("former", 9), "t", 0) == (0, 0)


def test_an_export_goes_on_behind_what_its_target_took(tmp_path: Path) -> None:
    """The target refuses at times, and the exporter is started again: no entry is missing."""
    cluster = MemoryCluster()
    log = AccessLog(cluster, LogSigner(b"k" * 32), "server", timeout_s=patient(5.0))
    log.start()
    with webhook() as siem:
        target = AuditExport(webhook="${SIEM_URL}", bearer="${SIEM_TOKEN}")
        environ = {"SIEM_URL": siem.url, "SIEM_TOKEN": "s3cret"}
        written = []
        for part in range(3):
            siem.answers[:] = [503, 400]  # neither makes it skip anything
            exporter = AuditExporter("siem", target, cluster, tmp_path, environ)
            exporter.start()
            for number in range(5):
                entry = Entry(LoggedAction.view_change, Outcome.ok, Who("ana"), part * 10 + number)
                written.append(entry.id)
                log.change(entry).result(patient(5.0))
            until(lambda: set(written) <= ids(siem.bodies), 60.0, lambda: str(siem.bodies))
            until(lambda: (PositionFile(tmp_path, "siem").read() or ExportPosition("", 0)).offset >= 6, 10.0)
            exporter.stop()
        assert all(each["Authorization"] == "Bearer s3cret" for each in siem.headers)
        assert all(each["Content-Type"] == "application/cloudevents-batch+json" for each in siem.headers)
    log.stop()
    names = [each["id"] for body in siem.bodies for each in body]
    assert [each for each in names if each in written] == written  # in order, and here none twice


def ids(bodies: Sequence[Any]) -> set[str]:
    return {each["id"] for body in bodies for each in body}

"""Keys wrapped by key management services: AWS KMS as moto serves it, and Vault's transit over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from s3_server import s3_server

from hub.config.kms import KmsKey
from hub.schema_registry.encryption.kms import KmsClient, KmsFailed

RAW = b"a data encryption key"
TOKEN = "s.canary-token"


def test_aws_kms_wraps_and_unwraps(tmp_path: Path) -> None:
    with s3_server(tmp_path / "moto.log", "unused") as variables:
        endpoint = variables["AWS_ENDPOINT_URL"]
        made = httpx2.post(
            endpoint,
            json={},
            headers={
                "X-Amz-Target": "TrentService.CreateKey",
                "Content-Type": "application/x-amz-json-1.1",
                "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/eu-west-1/kms/aws4_request",
            },
        )
        arn = made.json()["KeyMetadata"]["Arn"]
        (tmp_path / "aws.secret").write_text("secret\n")
        allowed = KmsKey(
            key="aws-kms://arn:aws:kms:*",
            properties={"endpoint": endpoint, "access.key.id": "key"},
            secrets={"secret.access.key": "aws.secret"},
        )
        kms = KmsClient([allowed], tmp_path)
        wrapped = kms.wrap("aws-kms", arn, RAW)
        assert RAW not in wrapped and kms.unwrap("aws-kms", arn, wrapped) == RAW
        with pytest.raises(KmsFailed, match="HTTPStatusError") as failed:
            kms.wrap("aws-kms", f"{arn}0", RAW)
        assert failed.value.retriable
        with pytest.raises(KmsFailed, match="ValueError"):
            kms.wrap("aws-kms", "arn:aws:kms:x", RAW)


class Transit(BaseHTTPRequestHandler):
    """Vault's transit engine, as its API reference describes it: ``vault:v1:`` and something reversible."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = 200, {}
        if self.headers["X-Vault-Token"] != TOKEN:
            status, answer = 403, {"errors": [f"permission denied: {self.headers['X-Vault-Token']}"]}
        elif self.path == "/v1/transit/encrypt/pii":
            answer = {"data": {"ciphertext": f"vault:v1:{body['plaintext'][::-1]}"}}
        elif self.path == "/v1/transit/decrypt/pii":
            answer = {"data": {"plaintext": body["ciphertext"].removeprefix("vault:v1:")[::-1]}}
        else:
            status, answer = 404, {"errors": []}
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def vault() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Transit)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_vaults_transit_engine_wraps_and_unwraps(vault: str, tmp_path: Path) -> None:
    token = tmp_path / "vault.token"
    token.write_text(f"{TOKEN}\n")
    allowed = KmsKey(key=f"hcvault://{vault}/transit/keys/*", secrets={"token.id": "vault.token"})
    kms = KmsClient([allowed], tmp_path)
    wrapped = kms.wrap("hcvault", f"{vault}/transit/keys/pii", RAW)
    assert wrapped == b"vault:v1:" + base64.b64encode(RAW)[::-1]
    assert kms.unwrap("hcvault", f"{vault}/transit/keys/pii", wrapped) == RAW
    token.write_text("another-canary")  # used at once, and never in a message
    with pytest.raises(KmsFailed) as failed:
        kms.unwrap("hcvault", f"{vault}/transit/keys/pii", wrapped)
    assert "canary" not in f"{failed.value.message}{failed.value.hint}"
    assert failed.value.__cause__ is None

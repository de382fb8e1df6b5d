"""[edge] awscrt: wrap and unwrap keys by AWS KMS, as Confluent's driver does: the wrapped key is the
``CiphertextBlob``.

Confluent's driver needs boto3, which the hub does not have. The credentials are those of the properties, or
else found as every tool of AWS finds them: variables, profile, role.
Source: AWS KMS API reference, actions Encrypt and Decrypt.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from io import BytesIO

import httpx2
import orjson
from awscrt.auth import AwsCredentialsProvider, AwsSigningConfig, aws_sign_request
from awscrt.http import HttpHeaders, HttpRequest

PREFIX = "aws-kms://"
_TIMEOUT_S = 10.0
_ARN_PARTS = 6  # arn:aws:kms:REGION:ACCOUNT:key/ID


class AwsKmsKey:
    """A key of AWS KMS. ``url``: aws-kms://ARN. Properties: access.key.id with secret.access.key, or profile;
    endpoint. Raises ValueError.
    """

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        self._arn = url.removeprefix(PREFIX)
        parts = self._arn.split(":")
        if len(parts) < _ARN_PARTS:
            raise ValueError("a key of AWS is named by its ARN")
        self._region = parts[3]
        default = f"https://kms.{self._region}.amazonaws.com"
        self._endpoint = httpx2.URL(properties.get("endpoint") or default)
        self._credentials = _credentials(properties)

    def encrypt(self, plaintext: bytes, _associated_data: bytes) -> bytes:
        answer = self._ask("Encrypt", {"Plaintext": base64.b64encode(plaintext).decode()})
        return base64.b64decode(answer["CiphertextBlob"])

    def decrypt(self, ciphertext: bytes, _associated_data: bytes) -> bytes:
        answer = self._ask("Decrypt", {"CiphertextBlob": base64.b64encode(ciphertext).decode()})
        return base64.b64decode(answer["Plaintext"])

    def _ask(self, action: str, arguments: Mapping[str, str]) -> Mapping[str, str]:
        """Send a signed request. Raises httpx2.HTTPError, ValueError."""
        body = orjson.dumps({"KeyId": self._arn, **arguments})
        headers = [
            ("host", self._endpoint.netloc.decode()),
            ("content-type", "application/x-amz-json-1.1"),
            ("x-amz-target", f"TrentService.{action}"),
        ]
        request = HttpRequest("POST", "/", HttpHeaders(headers), BytesIO(body))
        config = AwsSigningConfig(credentials_provider=self._credentials, region=self._region, service="kms")
        signed = aws_sign_request(request, config).result(_TIMEOUT_S)
        answer = httpx2.post(
            self._endpoint.join("/"), content=body, headers=dict(signed.headers), timeout=_TIMEOUT_S
        )
        answer.raise_for_status()
        found: Mapping[str, str] = answer.json()
        return found


def _credentials(properties: Mapping[str, str]) -> AwsCredentialsProvider:
    key, secret = properties.get("access.key.id"), properties.get("secret.access.key")
    if key and secret:
        return AwsCredentialsProvider.new_static(key, secret)
    if properties.get("profile"):
        return AwsCredentialsProvider.new_profile(profile_name=properties["profile"])
    return AwsCredentialsProvider.new_default_chain()

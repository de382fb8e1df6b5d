"""Webhooks: whose request it is, what events it has, and what a wrong file does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import CallerError, NotFound, PeerError
from hub.topics.webhooks.deliveries import Shape, delivery_of
from hub.topics.webhooks.signatures import (
    TOLERANCE_S,
    Scheme,
    SignedRequest,
    Verification,
    refusal,
    signed_headers,
)
from hub.topics.webhooks.webhooks_file import LiveWebhooks

NOW = 1_700_000_000.0
SCHEMES: tuple[Scheme, ...] = ("github", "stripe", "slack", "shopify", "gitlab", "standard", "hmac", "token")
TIMED: tuple[Scheme, ...] = ("stripe", "slack", "standard")
FILE = """\
webhooks:
  github:
    topic: dev.github
    key: repository.full_name
    verify: {scheme: github, secrets: ["${GITHUB_SECRET}", "${GITHUB_FORMER}"]}
    fields: {event: X-GitHub-Event}
"""


def how(scheme: Scheme, *secrets: str) -> Verification:
    return Verification(scheme, secrets or ("s3cret",), "X-Signature" if scheme in ("hmac", "token") else "")


def asked(headers: dict[str, str], body: bytes, now_s: float = NOW) -> SignedRequest:
    return SignedRequest({name.lower(): value for name, value in headers.items()}, body, now_s)


def test_github_s_documented_example_is_accepted() -> None:
    """From GitHub's page "Validating webhook deliveries"."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    request = asked({"X-Hub-Signature-256": signature}, b"Hello, World!")
    assert refusal(how("github", "It's a Secret to Everybody"), request) is None


def test_the_documented_example_of_standard_webhooks_is_accepted() -> None:
    """From the specification of Standard Webhooks and Svix's documentation."""
    headers = {
        "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "svix-timestamp": "1614265330",
        "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    verification = how("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert refusal(verification, asked(headers, b'{"test": 2432232314}', 1_614_265_330)) is None


def test_slack_s_documented_example_is_accepted() -> None:
    """From Slack's page "Verifying requests from Slack"."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    verification = how("slack", "8f742231b10e8888abcd99yyyzzz85a5")
    assert refusal(verification, asked(headers, body, 1_531_420_618)) is None


@pytest.mark.parametrize("scheme", SCHEMES)
@given(body=st.binary(max_size=200), other=st.binary(max_size=200))
def test_a_signature_is_good_for_its_body_and_secret_alone(scheme: Scheme, body: bytes, other: bytes) -> None:
    headers = signed_headers(how(scheme), body, NOW, "d-1")
    assert refusal(how(scheme), asked(headers, body)) is None
    assert refusal(how(scheme, "new", "s3cret"), asked(headers, body)) is None, "while secrets rotate"
    assert refusal(how(scheme, "another"), asked(headers, body))
    if other != body and scheme not in ("gitlab", "token"):
        assert refusal(how(scheme), asked(headers, other))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_request_without_a_signature_or_with_garbage_is_refused(scheme: Scheme) -> None:
    assert "missing" in (refusal(how(scheme), asked({}, b"{}")) or "") or scheme == "standard"
    for garbage in ("", "sha256=", "v1,", "t=,v1=", "é", "=" * 5_000, "t=1,t=2,v1=zz", "0" * 64):
        named = dict.fromkeys(signed_headers(how(scheme), b"{}", NOW, "d"), garbage)
        why = refusal(how(scheme), asked(named, b"{}"))
        assert why and "s3cret" not in why


@pytest.mark.parametrize("scheme", TIMED)
def test_a_recorded_request_is_refused_later(scheme: Scheme) -> None:
    headers = signed_headers(how(scheme), b"{}", NOW, "d-1")
    assert refusal(how(scheme), asked(headers, b"{}", NOW + TOLERANCE_S)) is None
    for late in (TOLERANCE_S + 1, -TOLERANCE_S - 1):
        assert "signed" in (refusal(how(scheme), asked(headers, b"{}", NOW + late)) or "")


def test_an_event_has_its_headers_fields_and_the_name_of_its_delivery() -> None:
    shape = Shape("github", "t", None, "X-GitHub-Delivery", {"event": "X-GitHub-Event"})
    found = delivery_of(shape, {"x-github-event": "push", "x-github-delivery": "72d3"}, b'{"ref": "main"}')
    assert json.loads(found.body) == {"ref": "main", "event": "push"}
    assert found.idempotency_key == "webhook:github:72d3"
    assert delivery_of(shape, {}, b'{"ref": 1}').idempotency_key is None
    several = delivery_of(shape, {"x-github-event": "push"}, b'[{"a": 1}, {"a": 2}]')
    assert json.loads(several.body) == [{"a": 1, "event": "push"}, {"a": 2, "event": "push"}]
    stripe = Shape("stripe", "t", None, "$.data.id")
    assert delivery_of(stripe, {}, b'{"data": {"id": 7}}').idempotency_key == "webhook:stripe:7"
    assert (
        len(delivery_of(stripe, {}, json.dumps({"data": {"id": "é" * 999}}).encode()).idempotency_key or "")
        < 100
    )


def test_a_form_is_an_event_and_a_challenge_is_answered() -> None:
    shape = Shape("s", "t")
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert json.loads(delivery_of(shape, form, b"a=1&b=2&b=3").body) == {"a": "1", "b": ["2", "3"]}
    assert json.loads(delivery_of(shape, form, b"payload=%7B%22a%22%3A1%7D").body) == {"a": 1}
    asked_back = delivery_of(shape, {}, b'{"type": "url_verification", "challenge": "3eZb"}')
    assert asked_back.challenge == "3eZb" and not asked_back.body


@pytest.mark.parametrize("body", [b"", b"{", b"1", b"[]", b"[1]", b"null", b"\xff", b'"x"'])
def test_a_body_that_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError) as refused:
        delivery_of(Shape("s", "t"), {}, body)
    assert refused.value.code == "HUB-1326"


def test_a_changed_file_is_used_and_a_wrong_entry_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "webhooks.yaml"
    live = LiveWebhooks(path, {"GITHUB_SECRET": "a", "GITHUB_FORMER": "b"})
    with pytest.raises(NotFound):
        live.find("github")
    path.write_text(FILE)
    found = live.find("github")
    assert found.verification.secrets == ("a", "b")
    assert found.shape == Shape(
        "github", "dev.github", "repository.full_name", "X-GitHub-Delivery", {"event": "X-GitHub-Event"}
    )
    path.write_text(
        FILE + "  stripe: {topic: pay.events, verify: {scheme: stripe, secrets: [in-the-file]}}\n"
    )
    assert live.find("github") == found
    with pytest.raises(PeerError, match="error in webhooks.yaml"):
        live.find("stripe")
    path.write_text("webhooks: [")
    with pytest.raises(PeerError):
        live.find("github")
    path.unlink()
    with pytest.raises(NotFound):
        live.find("github")


def test_a_webhook_without_its_secret_accepts_nothing(tmp_path: Path) -> None:
    (tmp_path / "webhooks.yaml").write_text(FILE)
    with pytest.raises(PeerError, match="GITHUB_SECRET"):
        LiveWebhooks(tmp_path / "webhooks.yaml", {"GITHUB_FORMER": "b"}).find("github")

"""[edge] httpx and smtplib: one attempt to send a notification over its channel, within the channel's
timeout.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping

import httpx2

from hub.alerts.config.alerts_yaml import Channel, Email
from hub.alerts.delivery.payloads import mail, slack_body, webhook_body
from hub.alerts.model.alert_state import Notification
from hub.errors import CallerError, PeerError
from hub.security import secret_value

ID_HEADER = "Hub-Notification-Id"
# HTTP statuses that a retry may resolve.
_AGAIN = (408, 425, 429)


def send(
    name: str, channel: Channel, notification: Notification, link: str, environ: Mapping[str, str]
) -> None:
    """Send a notification once. Raises ConfigError (HUB-1602: a variable is not set), CallerError (HUB-1117:
    refused permanently), PeerError (HUB-3070: refused for now). No message contains a secret.
    """
    seconds = channel.timeout / 1000
    if channel.webhook is not None:
        headers = {ID_HEADER: notification.id}
        if channel.webhook.bearer is not None:
            headers["Authorization"] = f"Bearer {value_of(name, channel.webhook.bearer, environ)}"
        url = value_of(name, channel.webhook.url, environ)
        post_json(name, url, webhook_body(notification, link), headers, seconds)
    elif channel.slack is not None:
        post_json(
            name, value_of(name, channel.slack.url, environ), slack_body(notification, link), {}, seconds
        )
    elif channel.email is not None:
        password = channel.email.password and value_of(name, channel.email.password, environ)
        _mail(name, channel.email, password, notification, link, seconds)


def value_of(channel: str, text: str, environ: Mapping[str, str]) -> str:
    """Resolve ``${NAME}`` from the environment; other text is returned unchanged."""
    return secret_value(text, environ, f'channel "{channel}"', "set {}=… where the hub's server starts")


def post_json(name: str, url: str, body: object, headers: Mapping[str, str], seconds: float) -> None:
    """Send JSON once. Raises CallerError (HUB-1117: refused permanently), PeerError (HUB-3070: for now)."""
    try:
        answer = httpx2.post(url, json=body, headers=headers, timeout=seconds, follow_redirects=False)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise PeerError(
            f'channel "{name}": no answer ({type(error).__name__})',
            hint="is its address right?",
            code="HUB-3070",
        ) from None
    if answer.is_success:
        return
    reply = " ".join(answer.text[:200].split())
    message = f'channel "{name}": HTTP {answer.status_code}' + (f" ({reply})" if reply else "")
    if answer.status_code >= 500 or answer.status_code in _AGAIN:
        raise PeerError(message, code="HUB-3070")
    raise CallerError(
        message,
        hint="its address or its token is wrong, or it takes another kind of message",
        code="HUB-1117",
    )


def _mail(
    name: str, email: Email, password: str | None, notification: Notification, link: str, seconds: float
) -> None:
    host, _, port = email.server.rpartition(":")
    host = host.strip("[]")
    message = mail(notification, link, email.sender, email.to)
    context = ssl.create_default_context()
    try:
        with (
            smtplib.SMTP_SSL(host, int(port), timeout=seconds, context=context)
            if email.tls == "implicit"
            else smtplib.SMTP(host, int(port), timeout=seconds)
        ) as server:
            if email.tls == "starttls":
                server.starttls(context=context)
            if email.user is not None and password is not None:
                server.login(email.user, password)
            refused = server.send_message(message)
    except (smtplib.SMTPAuthenticationError, smtplib.SMTPNotSupportedError) as error:
        raise CallerError(
            f'channel "{name}": {type(error).__name__}',
            hint="are user, password and tls right?",
            code="HUB-1117",
        ) from None
    except (smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as error:
        raise _refused(name, error) from None
    except (OSError, smtplib.SMTPException) as error:
        raise PeerError(
            f'channel "{name}": {email.server} does not take mail now ({type(error).__name__})',
            code="HUB-3070",
        ) from None
    if refused:
        raise CallerError(f'channel "{name}": not taken for {", ".join(sorted(refused))}', code="HUB-1117")


def _refused(name: str, error: smtplib.SMTPException) -> CallerError | PeerError:
    codes = (
        [code for code, _ in error.recipients.values()]
        if isinstance(error, smtplib.SMTPRecipientsRefused)
        else [error.smtp_code]
        if isinstance(error, smtplib.SMTPResponseException)
        else []
    )
    message = f'channel "{name}": {type(error).__name__} {", ".join(map(str, codes))}'.rstrip()
    if codes and all(code >= 500 for code in codes):
        return CallerError(message, hint="the server refuses the sender or who it is to", code="HUB-1117")
    return PeerError(message, code="HUB-3070")

"""[core] Credentials in URLs."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit


def with_credentials(url: str, known: tuple[str, str] | None) -> str:
    """Return the URL with credentials.

    >>> with_credentials("http://hub:8088/r", ("ana", "a b"))
    'http://ana:a%20b@hub:8088/r'
    """
    if known is None:
        return url
    parts, (user, password) = urlsplit(url), known
    return urlunsplit(
        parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}")
    )


def without_credentials(url: str) -> str:
    """Return the URL without its credentials, for display.

    >>> without_credentials("http://ana:secret@hub:8088")
    'http://hub:8088'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

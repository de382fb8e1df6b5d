"""Address of the hub's own server, as this machine reaches it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hub.config import Settings
from hub.embedded import check_port
from hub.errors import ConfigError


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8088"),
        ("0.0.0.0", "http://127.0.0.1:8088"),
        ("::1", "http://[::1]:8088"),
        ("::", "http://[::1]:8088"),
        ("hub.example.com", "http://hub.example.com:8088"),
    ],
)
def test_the_address_of_a_server_is_one_that_can_be_asked(host: str, url: str, tmp_path: Path) -> None:
    settings = Settings(http_host=host, home=tmp_path, token="ana:secret")
    assert settings.url == url
    assert settings.registry == url.replace("//", "//ana:secret@")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_that_is_taken_is_found_on_either_kind_of_address(
    family: socket.AddressFamily, host: str
) -> None:
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .the hub's server. is in use by pid"):
            check_port(host, port, "the hub's server", "take another")
    check_port(host, port, "the hub's server", "take another")

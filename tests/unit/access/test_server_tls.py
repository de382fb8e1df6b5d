"""TLS of the server itself, by a real listener:
certificates of clients, changed files, and files that do not fit."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from certificates import certificate
from fastapi import FastAPI
from patience import patient

from hub.access.access_yaml import load_access
from hub.access.live_config import LiveAccess
from hub.access.server_tls import FollowedContext
from hub.api.guard import AuthenticationContext, Guard
from hub.api.http import BoundedHttp
from hub.caller import CALLER
from hub.cli.platform.https import context_of, listener_of
from hub.errors import ConfigError
from hub.security import ServerTls

FILE = """\
groups: {shop: [{role: read, topics: ["shop.**"]}]}
users:
  checkout: {certificates: ["CN=checkout"], groups: [shop]}
"""


class Secured:
    """A listener with TLS over the guard; ``/api/topics`` tells who asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("server", "checkout", "stranger"):
            certificate(folder, name)
        for kind in ("pem", "key"):
            shutil.copy(folder / f"server.{kind}", folder / f"current.{kind}")
        (folder / "access.yaml").write_text(FILE)
        app = FastAPI()

        @app.get("/api/topics")
        def me() -> dict[str, Any]:
            caller = CALLER.get()
            return {"name": caller.name if caller else None}

        app.add_middleware(Guard, door=AuthenticationContext(LiveAccess(folder), folder / "home"))
        tls = ServerTls(
            certificate=Path("current.pem"),
            key=Path("current.key"),
            client_ca=Path("checkout.pem"),
            host="127.0.0.1",
            port=0,
        )
        self.context = context_of(tls, folder)
        plain = uvicorn.Config(app, http=BoundedHttp, timeout_graceful_shutdown=1)
        self.listener = listener_of(plain, tls, self.context)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.listener.serve()), daemon=True)
        self.thread.start()
        deadline = time.monotonic() + patient(15)
        while not self.listener.started:
            assert time.monotonic() < deadline and self.thread.is_alive()
            threading.Event().wait(0.02)
        port = self.listener.servers[0].sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{port}"

    def get(self, path: str, trusted: str = "server", own: str | None = None) -> httpx2.Response:
        context = ssl.create_default_context(cafile=str(self.folder / f"{trusted}.pem"))
        if own is not None:
            context.load_cert_chain(self.folder / f"{own}.pem", self.folder / f"{own}.key")
        with httpx2.Client(verify=context, timeout=patient(10)) as client:
            return client.get(f"{self.url}{path}")

    def replace(self, name: str, *kinds: str) -> None:
        for kind in kinds:
            draft = self.folder / f"draft.{kind}"
            shutil.copy(self.folder / f"{name}.{kind}", draft)
            draft.replace(self.folder / f"current.{kind}")
        self.context.refresh()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("tls"))
    yield made
    made.listener.should_exit = True
    made.thread.join(patient(10))


def test_a_certificate_stands_for_its_user_and_no_other_does(secured: Secured) -> None:
    known = secured.get("/api/topics", own="checkout")
    assert known.json() == {"name": "checkout"}
    assert known.headers["strict-transport-security"] == "max-age=31536000"
    assert secured.get("/api/topics").status_code == 401
    with pytest.raises((httpx2.HTTPError, ssl.SSLError)):  # of an authority that is not trusted
        secured.get("/api/topics", own="stranger")
    # the certificate is the connection's: a header says nothing
    with httpx2.Client(
        verify=ssl.create_default_context(cafile=str(secured.folder / "server.pem"))
    ) as client:
        told = {
            "hub.certificate": "CN=checkout",
            "X-Client-Cert": "CN=checkout",
            "X-Forwarded-User": "checkout",
        }
        assert client.get(f"{secured.url}/api/topics", headers=told).status_code == 401


def test_another_sites_page_cannot_use_the_certificate_of_a_browser(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.folder / "server.pem"))
    context.load_cert_chain(secured.folder / "checkout.pem", secured.folder / "checkout.key")
    with httpx2.Client(verify=context) as client:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.test"}):
            refused = client.post(f"{secured.url}/subjects/shop.a-value/versions", headers=headers)
            assert refused.status_code == 403 and "another site" in refused.text
        assert client.post(f"{secured.url}/subjects/shop.a-value/versions").status_code == 404  # a program's


def test_changed_files_are_used_and_wrong_ones_are_not(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    certificate(secured.folder, "renewed")
    secured.replace("renewed", "pem")  # its key comes a moment later
    assert "cannot be used" in caplog.text
    assert secured.get("/api/topics").status_code == 401
    secured.replace("renewed", "key")
    assert secured.get("/api/topics", trusted="renewed").status_code == 401
    with pytest.raises((httpx2.HTTPError, ssl.SSLError)):
        secured.get("/api/topics", trusted="server")
    (secured.folder / "current.pem").unlink()
    secured.context.refresh()
    assert secured.get("/api/topics", trusted="renewed").status_code == 401


def test_a_start_with_wrong_files_names_them(tmp_path: Path) -> None:
    certificate(tmp_path, "a")
    certificate(tmp_path, "b")
    for pem, key in (("a.pem", "b.key"), ("none.pem", "a.key"), ("a.key", "a.key")):
        with pytest.raises(ConfigError, match="cannot be used") as refused:
            FollowedContext.of(tmp_path / pem, tmp_path / key, None)
        assert refused.value.code == "HUB-1721"


def test_one_certificate_is_one_users(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text("users: {a: {certificates: [CN=x]}, b: {certificates: [CN=x]}}\n")
    with pytest.raises(ConfigError, match="have the same certificate CN=x"):
        load_access(path)
    path.write_text("users: {a: {certificates: [x]}}\n")
    with pytest.raises(ConfigError, match="not a name of a certificate"):
        load_access(path)

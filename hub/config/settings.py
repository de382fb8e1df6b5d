"""[edge] Settings: ``hub.yaml`` in the project folder, overridden by ``HUB_*`` variables. The only home of
defaults.

Precedence: command-line flag, then environment, then ``hub.yaml``, then the default written here.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from hub.config.kafka import KafkaSettings
from hub.config.operation import OperationSettings
from hub.config.server import ServerSettings
from hub.config.urls import with_credentials
from hub.config.views import SERVING, ViewSettings, url_of_store
from hub.home_key import OWN, own_password, read_key
from hub.yaml import load_mapping


class _ProjectFile(YamlConfigSettingsSource):
    """hub.yaml, read with the limits of every file of the hub: pydantic's own reading has none."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return load_mapping(Path(file_path))


class Settings(OperationSettings, ViewSettings, ServerSettings, KafkaSettings, BaseSettings):
    """Locations and limits of the hub. Every path is made absolute against ``project``."""

    model_config = SettingsConfigDict(
        env_prefix="HUB_",
        env_nested_delimiter="__",
        yaml_file="hub.yaml",
        extra="forbid",
        frozen=True,
    )

    @property
    def store_urls(self) -> dict[str, str]:
        """Return the URL of every store by name; the one that serves by key first."""
        folder = self.home.absolute() / "stores"
        more = {name: url_of_store(name, url, folder) for name, url in self.stores.items()}
        return {SERVING: self.store, **more}

    @property
    def url(self) -> str:
        """Base URL of the hub's own server, as this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.http_host, self.http_host)
        return f"http://[{host}]:{self.http_port}" if ":" in host else f"http://{host}:{self.http_port}"

    @property
    def runs_connect(self) -> bool:
        """Return whether ``hub up`` starts a worker of Kafka Connect."""
        if self.embedded_connect is not None:
            return self.embedded_connect
        return not self.connect_urls and (self.project.expanduser() / "connectors.yaml").exists()

    @property
    def writes_access_log(self) -> bool:
        """Return whether commands log changes: by ``access_log``, else while access is controlled."""
        if self.access_log is not None:
            return self.access_log
        return bool(self.admin_token) or (self.project.expanduser() / "access.yaml").exists()

    @property
    def connect_workers(self) -> list[str]:
        """Return the REST addresses of all workers of Kafka Connect, the embedded one first."""
        own = [f"http://127.0.0.1:{self.connect_port}"] if self.runs_connect else []
        return [*own, *(url for url in self.connect_urls if url not in own)]

    @property
    def own_names(self) -> list[str]:
        """Names of the server that need no mention in ``allowed_hosts``:
        as bound, this machine's, that of ``registry_url``."""
        registry = urlsplit(self.registry_url).hostname if self.registry_url else None
        names = (self.http_host, gethostname(), registry or "")
        return [name.lower().rstrip(".") for name in names if name]

    @property
    def registry(self) -> str:
        """Base URL of the schema registry, with who asks it (user:password@) where
        there is something to say."""
        if self.registry_url is None:
            return with_credentials(self.url, self.credentials)
        named = "@" in urlsplit(self.registry_url).netloc
        # The key of the home is the hub's own server's alone.
        return (
            self.registry_url
            if named or not self.token
            else with_credentials(self.registry_url, self.credentials)
        )

    @property
    def credentials(self) -> tuple[str, str] | None:
        """(user, password) for the hub's own server; None: there is nothing to say. Raises ConfigError."""
        if self.token:
            user, colon, password = self.token.partition(":")
            return (user, password) if colon else ("token", self.token)
        key = read_key(self.home)
        return None if key is None else (OWN, own_password(key))

    @property
    def authorization(self) -> dict[str, str]:
        """Return the credentials as a header; {} without credentials."""
        if (known := self.credentials) is None:
            return {}
        return {"Authorization": f"Basic {b64encode(':'.join(known).encode()).decode()}"}

    @property
    def store(self) -> str:
        """SQLAlchemy URL of the store."""
        return self.store_url or f"sqlite:///{self.home.absolute() / 'store.db'}"

    @property
    def checkpoints(self) -> Path:
        return self.home.absolute() / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.home.absolute() / "logs"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _ProjectFile(settings_cls)

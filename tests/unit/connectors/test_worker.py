"""The embedded worker: when it runs, and what its files say."""

from __future__ import annotations

from pathlib import Path

from hub.cli.platform.up import children
from hub.config import Settings
from hub.connectors.worker import render_worker, secret_folders


def test_a_worker_runs_where_connectors_are_declared_and_no_other_cluster_is_named(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path, home=tmp_path / "home", connect_port=8183)
    assert not settings.runs_connect and settings.connect_workers == []
    assert "connect" not in [each.name for each in children(settings)]
    (tmp_path / "connectors.yaml").write_text("connectors: {}\n")
    assert settings.connect_workers == ["http://127.0.0.1:8183"]
    assert children(settings)[-1].name == "connect"
    other = settings.model_copy(update={"connect_urls": ["http://other:8083"]})
    assert not other.runs_connect and other.connect_workers == ["http://other:8083"]
    assert other.model_copy(update={"embedded_connect": True}).connect_workers == [
        "http://127.0.0.1:8183",
        "http://other:8083",
    ]
    assert not settings.model_copy(update={"embedded_connect": False}).runs_connect


def test_the_workers_file_has_the_security_of_kafka_for_each_client(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path, home=tmp_path / "home")
    (tmp_path / "secrets").mkdir()
    security = {"ssl.truststore.certificates": "-----BEGIN\nä\\"}
    text = render_worker(settings, tmp_path / "plugins", secret_folders(settings), security)
    said = dict(line.split("=", 1) for line in text.splitlines())
    for client in ("", "producer.", "consumer.", "admin."):
        assert said[f"{client}ssl.truststore.certificates"] == r"-----BEGIN\n\u00e4\\"
    assert said["exactly.once.source.support"] == "enabled"
    assert said["config.providers.file.param.allowed.paths"].endswith(f",{tmp_path / 'secrets'}")
    assert said["plugin.discovery"] == "service_load"
    (tmp_path / "connect-plugins").mkdir()
    (tmp_path / "connect-plugins" / "a.toml").touch()
    assert "plugin.discovery=hybrid_warn" in render_worker(settings, tmp_path / "p", [], {})

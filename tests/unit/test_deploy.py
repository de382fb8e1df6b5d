"""The Compose file and the Dockerfile agree with the code: settings, commands, versions, paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hub.cli import COMMANDS
from hub.config import Settings
from hub.embedded.jars import lock_path
from hub.embedded.lock import parse_lock

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def compose() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    assert isinstance(content, dict)
    return content


def hub_services() -> dict[str, Any]:
    return {name: service for name, service in compose()["services"].items() if "build" in service}


def test_every_hub_variable_is_a_setting() -> None:
    named = {name for service in hub_services().values() for name in service["environment"]}
    named |= set(re.findall(r"HUB_\w+(?==)", DOCKERFILE))
    assert named
    assert {name.removeprefix("HUB_").lower() for name in named} <= set(Settings.model_fields)


def test_every_command_exists_and_every_process_is_there() -> None:
    commands = {service["command"][0] for service in hub_services().values()}
    assert commands <= set(COMMANDS)
    assert {"serve", "apply-changelogs", "materialize"} <= commands


def test_dependencies_and_volumes_are_declared() -> None:
    content = compose()
    for service in content["services"].values():
        assert set(service.get("depends_on", {})) <= set(content["services"])
        for volume in service.get("volumes", []):
            source = volume.split(":/")[0]
            assert source.startswith("$") or source in content["volumes"]
    for name, needs in ((n, s.get("depends_on", {})) for n, s in content["services"].items()):
        for needed, how in needs.items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in content["services"][needed], f"{name} waits for {needed}'s health"


def test_kafka_is_the_locked_version() -> None:
    locked = next(jar for jar in parse_lock(lock_path().read_text()) if jar.artifact == "kafka_2.13")
    assert compose()["services"]["kafka"]["image"] == f"apache/kafka:{locked.version}"


def test_only_the_server_is_published_and_on_loopback() -> None:
    published = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8088:8088"]


def test_what_the_image_copies_exists() -> None:
    sources = [
        part for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for part in line.split()
    ]
    assert sources
    assert all((ROOT / source).exists() for source in sources)

"""The Compose file and the Dockerfile agree with the code: settings, commands, versions, paths."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyspark
import pytest
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
            folder = ROOT / "deploy" / source
            assert source.startswith("$") or source in content["volumes"] or folder.is_dir()
    for name, needs in ((n, s.get("depends_on", {})) for n, s in content["services"].items()):
        for needed, how in needs.items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in content["services"][needed], f"{name} waits for {needed}'s health"


def test_kafka_is_the_locked_version() -> None:
    locked = next(jar for jar in parse_lock(lock_path().read_text()) if jar.artifact == "kafka_2.13")
    assert compose()["services"]["kafka"]["image"] == f"apache/kafka:{locked.version}"


def test_only_what_people_look_at_is_published_and_on_loopback() -> None:
    published = {
        name: service["ports"] for name, service in compose()["services"].items() if "ports" in service
    }
    assert published == {"server": ["127.0.0.1:8088:8088"], "prometheus": ["127.0.0.1:9090:9090"]}


def test_prometheus_comes_when_it_is_asked_for_and_scrapes_the_server() -> None:
    services = compose()["services"]
    assert services["prometheus"]["profiles"] == ["monitoring"]
    folder = ROOT / "deploy" / "prometheus"
    assert "./prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in services["prometheus"]["command"]
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    port = services["server"]["ports"][0].rpartition(":")[2]
    assert scrape["static_configs"] == [{"targets": [f"server:{port}"]}]
    assert [name for name in config["rule_files"] if not (folder / name).is_file()] == []


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here: ./run test installs it where it may"
)
def test_promtool_takes_the_config_with_its_rules() -> None:
    path = str(ROOT / "deploy" / "prometheus" / "prometheus.yml")
    done = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


def test_what_the_image_copies_exists() -> None:
    sources = [
        part for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for part in line.split()
    ]
    assert sources
    assert all((ROOT / source).exists() for source in sources)


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "hub.yaml").read_text()))


def named(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in manifests() if each["kind"] == kind and each["metadata"]["name"] == name)


def workloads() -> list[dict[str, Any]]:
    return [each for each in manifests() if "template" in each.get("spec", {})]


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_kubernetes_takes_the_manifest(manifest: dict[str, Any]) -> None:
    """By the schemas of its API, with no key that it does not know."""
    for release in ("1.30", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, release, strict=True)


def test_the_manifests_settings_and_commands_are_the_hubs() -> None:
    settings = named("ConfigMap", "hub")["data"]
    parsed = {name.removeprefix("HUB_").lower(): value for name, value in settings.items()}
    parsed["spark_conf"] = json.loads(parsed["spark_conf"])
    assert (
        Settings(**parsed).spark_conf["spark.kubernetes.container.image"]
        == f"apache/spark:{pyspark.__version__}"
    )
    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in workloads()]
    assert {each["args"][0] for each in containers} <= set(COMMANDS)
    assert {"serve", "apply-changelogs", "materialize"} <= {each["args"][0] for each in containers}


def test_the_manifests_name_what_is_there() -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in manifests()}
    settings = named("ConfigMap", "hub")["data"]
    conf = json.loads(settings["HUB_SPARK_CONF"])
    claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.hub-checkpoints"
    assert ("PersistentVolumeClaim", conf[f"{claim}.options.claimName"]) in there
    assert ("Service", settings["HUB_SPARK_DRIVER_HOST"]) in there
    assert ("Service", settings["HUB_REGISTRY_URL"].split("/")[2].split(":")[0]) in there
    ports = {port["name"]: port["port"] for port in named("Service", "hub-materializer")["spec"]["ports"]}
    assert ports == {
        "driver": int(conf["spark.driver.port"]),
        "blocks": int(conf["spark.driver.blockManager.port"]),
    }
    assert (
        conf["spark.kubernetes.driver.pod.name"]
        == named("StatefulSet", "hub-materializer")["metadata"]["name"] + "-0"
    )
    spec = named("StatefulSet", "hub-materializer")["spec"]["template"]["spec"]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    # The driver's checkpoints and the executors' are the same folder under the same name.
    assert (
        mounts["checkpoints"] == conf[f"{claim}.mount.path"] == re.findall(r"HUB_HOME=(\S+)", DOCKERFILE)[0]
    )
    assert ("ServiceAccount", spec["serviceAccountName"]) in there
    template = named("ConfigMap", "hub-executor")["data"]
    kubernetes_validate.validate(yaml.safe_load(template["executor.yaml"]), "1.30", strict=True)
    assert Path(conf["spark.kubernetes.executor.podTemplateFile"]).name in template

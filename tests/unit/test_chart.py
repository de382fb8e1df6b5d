"""The Helm chart: its values are checked, Kubernetes accepts its manifests, the plain ones are fresh."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from chart import CHART, PLAIN, digest, plain, rendered

from hub.cli import COMMANDS
from hub.config import Settings

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
EVERYTHING = {
    "server.sqlPort": "5433",
    "server.ingress.enabled": "true",
    "server.ingress.tlsSecret": "hub-tls",
    "server.autoscaling.enabled": "true",
    "monitoring.serviceMonitor": "true",
    "mirror.replicas": "2",
    "outbox.secret": "crm",
    "project.from": "git",
    "project.git.repository": "https://git.example/hub",
    "project.git.secret": "git",
    "project.git.folder": "prod",
    "strimzi.enabled": "true",
}
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="no helm here")


def paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{above}{name}.")


def test_the_default_values_pass_their_schema_and_a_mistyped_one_does_not() -> None:
    jsonschema.validate(VALUES, SCHEMA)
    for wrong in ({"server": {"replcas": 2}}, {"server": {"replicas": 0}}, {"project": {"from": "nowhere"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_every_value_that_a_template_names_exists() -> None:
    named = {
        name for text in TEMPLATES.values() for name in re.findall(r"\.Values\.([A-Za-z]\w*(?:\.\w+)*)", text)
    }
    assert named and named <= set(paths(VALUES))


def test_every_setting_and_command_of_the_templates_is_the_hubs() -> None:
    text = "".join(TEMPLATES.values())
    settings = {name.removeprefix("HUB_").lower() for name in re.findall(r"\bHUB_[A-Z_]+\b", text)}
    assert settings and settings <= set(Settings.model_fields)
    commands = {each.split('"')[0] for each in re.findall(r'"args" \(list "(.*?)\)', text)}
    commands |= {each.split(",")[0] for each in re.findall(r"args: \[(.*?)\]", text)}
    assert {"serve", "apply-changelogs", "materialize", "mirror", "outbox"} <= commands <= set(COMMANDS)


def test_the_plain_manifests_are_those_of_this_chart() -> None:
    assert f"sha256 {digest()}\n" in PLAIN.read_text(), "render them again: ./run manifests (needs helm)"


@needs_helm
def test_helm_lints_the_chart_and_renders_the_plain_manifests() -> None:
    done = subprocess.run(
        ["helm", "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert plain() == PLAIN.read_text()


@needs_helm
def test_everything_switched_on_is_what_kubernetes_takes() -> None:
    manifests = [each for each in yaml.safe_load_all(rendered(EVERYTHING)) if each]
    own = [
        each for each in manifests if not each["apiVersion"].startswith(("kafka.strimzi.io", "monitoring."))
    ]
    for manifest in own:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    kinds = {each["kind"] for each in manifests}
    assert {"Ingress", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy", "Kafka"} <= kinds
    settings = next(each["data"] for each in own if each["metadata"]["name"] == "hub" and "data" in each)
    assert settings["HUB_PROJECT"] == "/git/project/prod"
    token = next(each for each in own if each["kind"] == "Secret")["data"]["token"]
    assert token != next(
        each["data"]["token"]
        for each in yaml.safe_load_all(rendered(EVERYTHING))
        if each and each["kind"] == "Secret"
    ), "the token is made for each release"


@needs_helm
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"project.from": "files"}, "project.files is empty"),
        ({"project.from": "git"}, "project.git.repository"),
        ({"server.replcas": "2"}, "replcas"),
    ],
)
def test_values_that_cannot_work_are_refused_with_their_name(values: dict[str, str], why: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(values)
    assert why in refused.value.stderr

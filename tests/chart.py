"""The Helm chart of deploy/helm, and the plain manifests that are rendered from it.

``python tests/chart.py`` renders deploy/kubernetes/hub.yaml anew; it needs ``helm``. The manifests name the
digest of the chart, so that a test without ``helm`` finds those that are older than their chart.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "event-hub"
PLAIN = ROOT / "deploy" / "kubernetes" / "hub.yaml"
HEADER = """\
# The hub on Kubernetes without Helm: rendered from deploy/helm/event-hub by ./run manifests. Do not edit it.
# Chart: sha256 {digest}
#
# Kafka and Postgres are yours. The image is deploy/Dockerfile with your project folder in /project
# (FROM event-hub:0.1.0, COPY . /project), pushed to where the cluster finds it. Then:
#   kubectl create secret generic hub-store \\
#     --from-literal=url='postgresql+psycopg://hub:PASSWORD@postgres:5432/hub'
#   kubectl create secret generic hub-token --from-literal=token="hubt_$(openssl rand -hex 32)"
#   kubectl apply -f deploy/kubernetes/hub.yaml
# The server is closed: until the project has an access.yaml, only that token gets in.
# A Kafka with TLS or SASL (docs/how-to/connect-a-secured-kafka.md) has its password and files in a secret:
#   kubectl create secret generic hub-kafka --from-literal=password="…" --from-file=ca.pem
# For other values and other namespaces than default, render it yourself: docs/how-to/install-with-helm.md
"""


def digest() -> str:
    """Return the sha256 of the chart: its files' paths and contents."""
    found = hashlib.sha256()
    for path in sorted(each for each in CHART.rglob("*") if each.is_file()):
        found.update(path.relative_to(CHART).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def rendered(values: Mapping[str, str]) -> str:
    """Return the manifests for these values, by ``helm template``. Raises CalledProcessError."""
    chosen = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    command = ["helm", "template", "hub", str(CHART), *chosen]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def plain() -> str:
    """Return the content of deploy/kubernetes/hub.yaml."""
    return HEADER.format(digest=digest()) + rendered({"adminToken.secret": "hub-token"})


if __name__ == "__main__":
    if shutil.which("helm") is None:
        sys.exit("./run manifests needs helm, which is not on the PATH: https://helm.sh/docs/intro/install")
    PLAIN.write_text(plain())
    print(f"wrote {PLAIN.relative_to(ROOT)}")

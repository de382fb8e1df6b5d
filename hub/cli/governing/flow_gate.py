"""[edge] Plans and validations refuse what flows.yaml refuses, from the project's files alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hub.cli.terminal.output import note
from hub.config import Settings

if TYPE_CHECKING:
    from hub.api.masking.flow_gate import Passing


def refuse_flows(settings: Settings, passing: Passing | None = None, mirrors: Path | None = None) -> None:
    """Print each flow that breaks a rule of flows.yaml; see ``hub.api.masking.flow_gate``."""
    if not (settings.project.expanduser() / "flows.yaml").exists():
        return
    from hub.api.masking.flow_gate import refuse_flows as refuse

    refuse(settings, passing, mirrors, note)

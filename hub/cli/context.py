"""[edge] The settings of this call: flags (already in the environment), environment, the project's hub.yaml, defaults."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from hub.config import Settings
from hub.errors import ConfigError, nearest


def load_settings(**flags: Any) -> Settings:
    """The settings; a flag that is None was not given. Raises ConfigError (HUB-1101) naming the setting."""
    given = {name: value for name, value in flags.items() if value is not None}
    project = Path(given.get("project") or os.environ.get("HUB_PROJECT") or ".")
    file = project / "hub.yaml"

    class InProject(Settings):
        model_config = SettingsConfigDict(yaml_file=file)

    try:
        settings = InProject(**given)
    except ValidationError as error:
        raise _explained(error, file) from error
    if settings.embedded_kafka and "bootstrap" not in settings.model_fields_set:
        settings = settings.model_copy(update={"bootstrap": f"127.0.0.1:{settings.kafka_port}"})
    return settings


def environment_of(settings: Settings) -> dict[str, str]:
    """The ``HUB_*`` variables that give a child process the very same settings."""
    values = settings.model_dump(exclude_none=True)
    text = {True: "true", False: "false"}
    return {
        f"HUB_{name.upper()}": text[value] if isinstance(value, bool) else _as_text(value)
        for name, value in values.items()
    }


def _as_text(value: object) -> str:
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return str(value.expanduser().absolute()) if isinstance(value, Path) else str(value)


def _explained(error: ValidationError, file: Path) -> ConfigError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "?"
    where = f"{file}, or variable HUB_{name.upper()}" if file.exists() else f"variable HUB_{name.upper()}"
    if first["type"] == "extra_forbidden":
        near = nearest(name, Settings.model_fields)
        hint = f'did you mean "{near}"?' if near else f"known are: {', '.join(Settings.model_fields)}"
        return ConfigError(f'setting "{name}" is not known', where=str(file), hint=hint, code="HUB-1101")
    got = re.sub(r"//[^/@\s]*@", "//…@", str(first["input"]))  # an address may have a password
    return ConfigError(
        f'setting "{name}": {first["msg"]}, got {got[:80]!r}',
        hint=f"see {where}",
        code="HUB-1101",
    )

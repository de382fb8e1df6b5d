"""[edge] The settings of this call: flags (already in the environment), environment, the project's hub.yaml, defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsConfigDict, SettingsError

from hub.config import Settings
from hub.errors import ConfigError, nearest
from hub.security import Sasl, Tls, is_secret


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
        raise _explained(error, file) from None  # its own text shows what it was given, secrets too
    except SettingsError as error:
        raise ConfigError(
            f"{error}: it is no JSON",
            hint='write it as in HUB_STORES=\'{"history": "duckdb"}\'',
            code="HUB-1101",
        ) from None
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
        return orjson.dumps(value, default=str).decode()
    return str(value.expanduser().absolute()) if isinstance(value, Path) else str(value)


def _explained(error: ValidationError, file: Path) -> ConfigError:
    first = error.errors()[0]
    steps = [str(step) for step in first["loc"]]
    if not steps:
        said = first["msg"].removeprefix("Value error, ")
        return ConfigError(said, hint=f"see {file}, and the variables HUB_*", code="HUB-1101")
    name, variable = ".".join(steps), f"HUB_{'__'.join(steps).upper()}"
    where = f"{file}, or variable {variable}" if file.exists() else f"variable {variable}"
    if first["type"] == "extra_forbidden":
        known = _known(steps[:-1])
        near = nearest(steps[-1], known)
        hint = f'did you mean "{near}"?' if near else f"known are: {', '.join(known)}"
        return ConfigError(f'setting "{name}" is not known', where=str(file), hint=hint, code="HUB-1101")
    got = re.sub(r"//[^/@\s]*@", "//…@", str(first["input"]))  # an address may have a password
    said = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f'setting "{name}": {said}' + ("" if is_secret(first) else f", got {got[:80]!r}"),
        hint=f"see {where}",
        code="HUB-1101",
    )


def _known(steps: Sequence[str]) -> list[str]:
    """The names that a setting's own settings have; of all settings by default."""
    within: dict[str, type[BaseModel]] = {"tls": Tls, "sasl": Sasl}
    return list(within.get(steps[0], Settings).model_fields if steps else Settings.model_fields)

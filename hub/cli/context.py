"""[edge] The settings of this call: flags (already in the environment), environment, where the hub of this
home folder runs, the project's hub.yaml, defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from hub.cli.terminal.output import note
from hub.config import Settings
from hub.errors import ConfigError, did_you_mean
from hub.home_key import make_private
from hub.security import Sasl, Tls, is_secret

# What is read of a project, by the end of its name.
_PROJECT_FILES = ("hub", "topics", "policies", "mirrors", "connectors", "access", "alerts", "flows")
_FILES = (*_PROJECT_FILES, "schemas/schemas")
_FOLDERS = ("views", "views/tests", "alerts")
# A folder with one of them is a project.
_OF_A_PROJECT = ("hub.yaml", "topics.yaml", "schemas", "views")


def load_settings(**flags: Any) -> Settings:
    """The settings; a flag that is None was not given. Raises ConfigError (HUB-1101) naming the setting.

    A hub that runs on this home folder is found where it is: its ports, and its project, unless a project is
    named or the current folder is one.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    named = given.get("project") or os.environ.get("HUB_PROJECT")
    settings = _read(Path(named or "."), given, {})
    beside = settings.project / ".hub"
    unnamed = named and "home" not in settings.model_fields_set
    if unnamed and not running_at(settings.home) and running_at(beside):
        # The project's hub was started in its folder, and this command runs in another one.
        settings = settings.model_copy(update={"home": beside})
    chosen = named or any((settings.project / name).exists() for name in _OF_A_PROJECT)
    running = running_at(settings.home)
    if not running or (chosen and settings.project.resolve() != Path(running["project"])):
        return settings
    return _read(Path(running["project"]), given, running)


def open_home(settings: Settings) -> None:
    """Make the home, private to this account, as ``hub.home_key.make_private`` does.
    Raises ConfigError (HUB-1113)."""
    try:
        make_private(settings.home, shared=not settings.spark_master.startswith("local"))
    except OSError as error:
        raise ConfigError(
            f'home folder "{settings.home}" cannot be made ({error.strerror})',
            hint="name another one: hub --home FOLDER, or HUB_HOME",
            code="HUB-1113",
        ) from None


def where_to_find(settings: Settings) -> dict[str, str]:
    """Return the settings that the running hub leaves in its home folder for other commands: nothing secret,
    no state.
    """
    return {
        "project": str(settings.project.resolve()),
        "http_port": str(settings.http_port),
        "kafka_port": str(settings.kafka_port),
    }


def running_at(home: Path) -> Mapping[str, str]:
    """Return the ``where_to_find`` of the running hub of this home; {} if none runs."""
    with suppress(OSError):
        if (home / "hub.pid").stat().st_size:  # do not load psutil for --help, or without a hub
            from hub.supervisor import running_hub

            hub = running_hub(home)
            return {} if hub is None else hub.found_by
    return {}


def _read(project: Path, given: Mapping[str, Any], running: Mapping[str, str]) -> Settings:
    _warn_of_misnamed(project.absolute())
    file = project / "hub.yaml"

    class InProject(Settings):
        model_config = SettingsConfigDict(yaml_file=file)

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *sources: Any, **more: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            flags, environment, yaml = super().settings_customise_sources(settings_cls, *sources, **more)
            return flags, environment, InitSettingsSource(settings_cls, dict(running)), yaml

    try:
        settings = InProject(**given)
    except ValidationError as error:
        raise _explained(error, file) from None  # pydantic's own text shows the values, including secrets
    except SettingsError as error:
        raise ConfigError(
            f"{error}: it is not JSON",
            hint='write it as in HUB_STORES=\'{"history": "duckdb"}\'',
            code="HUB-1101",
        ) from None
    if settings.embedded_kafka and "bootstrap" not in settings.model_fields_set:
        settings = settings.model_copy(update={"bootstrap": f"127.0.0.1:{settings.kafka_port}"})
    return settings


@cache
def _warn_of_misnamed(project: Path) -> None:
    """Print once which files are ignored for their suffix. Without this note, a missing definition looks like
    a defect of the hub.
    """
    named: list[str] = []
    with suppress(OSError):  # the code that needs the folder reports that it cannot be read
        named = sorted(each.relative_to(project).as_posix() for each in _misnamed(project))
    if named:
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        note(
            f"not read, for the hub reads .yaml only: {', '.join(named[:5])}{more}. Rename the files that "
            "it should read to .yaml"
        )


def _misnamed(project: Path) -> Iterator[Path]:
    """Files that would be the hub's, did they not end in ``.yml``."""
    for each in [project / f"{name}.yml" for name in _FILES] + [
        file for folder in _FOLDERS for file in (project / folder).glob("*.yml")
    ]:
        if each.is_file() and not each.name.startswith(".") and not each.with_suffix(".yaml").exists():
            yield each


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the ``HUB_*`` variables that give a child process the same settings."""
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
        complaint = first["msg"].removeprefix("Value error, ")
        return ConfigError(complaint, hint=f"see {file}, and the variables HUB_*", code="HUB-1101")
    name, variable = ".".join(steps), f"HUB_{'__'.join(steps).upper()}"
    where = f"{file}, or variable {variable}" if file.exists() else f"variable {variable}"
    if first["type"] == "extra_forbidden":
        known = _known(steps[:-1])
        hint = did_you_mean(steps[-1], known, f"known are: {', '.join(known)}")
        return ConfigError(f'setting "{name}" is not known', where=str(file), hint=hint, code="HUB-1101")
    got = re.sub(r"//[^/@\s]*@", "//…@", str(first["input"]))  # an address may have a password
    complaint = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f'setting "{name}": {complaint}' + ("" if is_secret(first) else f", got {got[:80]!r}"),
        hint=f"see {where}",
        code="HUB-1101",
    )


def _known(steps: Sequence[str]) -> list[str]:
    """The names that a setting's own settings have; of all settings by default."""
    within: dict[str, type[BaseModel]] = {"tls": Tls, "sasl": Sasl}
    return list(within.get(steps[0], Settings).model_fields if steps else Settings.model_fields)

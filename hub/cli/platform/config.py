"""[edge] ``hub config``: the settings in use, where each value comes from, and what each means."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer
from pydantic import BaseModel

from hub.cli.context import load_settings, running_at
from hub.cli.terminal.output import Output, OutputOption, show, show_one
from hub.config import Settings, without_credentials
from hub.errors import nearest
from hub.yaml import load_mapping

_COLUMNS = ("setting", "value", "from")
_HIDDEN = "***"
_SECRET = re.compile(r"password|secret|token$|credential", re.IGNORECASE)

app = typer.Typer(
    help="The settings in use, and where each comes from.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub config show; hub config show --changed; hub config explain spark_heap_mb",
)


class SettingOrigin(StrEnum):
    """Origin of a setting's value."""

    environment = "environment"
    flag = "command line"
    running = "running hub"
    file = "hub.yaml"
    default = "default"


@app.command("show")
def show_all(
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that were set somewhere")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show each setting with its value and where the value comes from; secrets are hidden.

    Example: hub config show --changed
    """
    settings = load_settings()
    rows = [line_of(settings, name) for name in Settings.model_fields]
    show([row for row in rows if not changed or row["from"] != SettingOrigin.default], output, _COLUMNS)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A setting, as in hub.yaml")],
    output: OutputOption = Output.table,
) -> None:
    """Explain one setting: its meaning, its value, its default, and its variable.

    Example: hub config explain lag_objective_s
    """
    field = Settings.model_fields.get(name)
    if field is None:
        near = nearest(name, list(Settings.model_fields))
        more = f"did you mean {near}?" if near else "hub config show lists all."
        raise typer.BadParameter(f'there is no setting "{name}": {more}')
    # Not a constant: the number of cores, or an empty list.
    default = field.get_default(call_default_factory=True)
    more_of_it = {"default": _plain(default), "meaning": field.description, "variable": f"HUB_{name.upper()}"}
    show_one({**line_of(load_settings(), name), **more_of_it}, output)


def line_of(settings: Settings, name: str) -> dict[str, Any]:
    """Return ``setting``, ``value`` (JSON; a secret as ``***``) and ``from`` of one setting."""
    value = _plain(getattr(settings, name))
    secret = value is not None and not Settings.model_fields[name].repr
    return {
        "setting": name,
        "value": _HIDDEN if secret else without_secrets(value),
        "from": origin_of(settings, name),
    }


def origin_of(settings: Settings, name: str) -> SettingOrigin:
    """Return where the value of a setting comes from."""
    variable = f"HUB_{name.upper()}"
    if variable in os.environ or any(each.startswith(f"{variable}__") for each in os.environ):
        return SettingOrigin.environment
    if name not in settings.model_fields_set:
        return SettingOrigin.default
    file = settings.project / "hub.yaml"
    written = load_mapping(file) if file.exists() else {}
    running = running_at(settings.home)
    if name in running and str(written.get(name)) != running[name]:
        return SettingOrigin.running
    if name in written:
        return SettingOrigin.file
    # Embedded Kafka's address follows from its port.
    return origin_of(settings, "kafka_port") if name == "bootstrap" else SettingOrigin.flag


def without_secrets(value: Any) -> Any:
    """Return a JSON value without the secrets in it: passwords in URLs, and values whose names say that they
    are secret.

    >>> without_secrets({"url": "http://ana:word@db", "password": "word"})
    {'url': 'http://db', 'password': '***'}
    """
    if isinstance(value, dict):
        return {
            key: _HIDDEN if each is not None and _SECRET.search(key) else without_secrets(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return without_credentials(value) if isinstance(value, str) and "://" in value else value


def _plain(value: Any) -> Any:
    """Return the value as JSON has it."""
    return orjson.loads(orjson.dumps(value, default=_as_json))


def _as_json(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else str(value)

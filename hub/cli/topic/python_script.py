"""[edge] Load a function from a script of the user."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub.errors import CallerError, NotFound


def script_function(script: Path, name: str) -> Callable[..., Any]:
    """Return the function ``name(event, record)`` of a Python file. Raises NotFound, CallerError."""
    spec = importlib.util.spec_from_file_location(f"hub_script_{script.stem}", script)
    if spec is None or spec.loader is None or not script.exists():
        raise NotFound(
            f'script "{script}" does not exist', hint=f"a Python file with: def {name}(event, record)"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a file of somebody's own raises
        raise CallerError(f'script "{script}" fails: {type(error).__name__}: {error}') from error
    function = getattr(module, name, None)
    if not callable(function):
        raise CallerError(
            f'script "{script}" has no function {name}', hint=f"def {name}(event, record): return event"
        )
    found: Callable[..., Any] = function
    return found

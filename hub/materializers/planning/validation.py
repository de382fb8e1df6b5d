"""[core] Check a view's file as far as it can be without Kafka: its stores, its columns, and how it would be
maintained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.config.views import Transforms
from hub.errors import ConfigError, did_you_mean, nearest
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_query import Query
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.classify import classify
from hub.materializers.planning.delta_inputs import planned
from hub.materializers.sql_rules.checks import slow_patterns
from hub.yaml import place

SchemasOf = Callable[[View | SqlView], tuple[Mapping[str, Any], list[str]]]
Built = Callable[[SqlView, Mapping[str, Any]], SqlView]


@dataclass(frozen=True, slots=True)
class ViewProject:
    """A project's views as one of them is checked. ``stores``: names of its stores.

    ``schemas_of`` returns the schemas of a view's sources by name, and the sources without one. ``built``
    returns a PySpark view with its SQL; None: its function is not run here. ``transforms``: the setting.
    """

    folder: Path
    stores: Collection[str]
    schemas_of: SchemasOf
    built: Built | None = None
    transforms: Transforms = "sandboxed"


@dataclass(frozen=True, slots=True)
class CheckedView:
    """A valid view: a summary in words, warnings, and how a SQL view is maintained."""

    summary: str
    warnings: tuple[str, ...] = ()
    plan: Classified | None = None


def checked_view(project: ViewProject, file: Path, view: View | SqlView) -> CheckedView:
    """Check a view as far as its file shows. Raises ConfigError."""
    check_python(view, project.transforms, file)
    _check_stores(project, file, view)
    schemas, unknown = project.schemas_of(view)
    summary, warnings, plan = "fine", list[str](), None
    if isinstance(view, SqlView):
        if view.python is not None:
            if unknown:
                return CheckedView(f"well formed; not checked: {unchecked(project.folder, view, unknown)}")
            if project.built is None:
                return CheckedView("well formed; not checked: its data frame, which needs Spark")
            view = project.built(view, schemas)
        query = checked(view, schemas)
        plan = classify(query)
        if not plan.native and not unknown:
            planned(plan, schemas)
        summary = f"fine; {plan.name}" + ("" if plan.native else ", by the incremental engine")
        _check_columns(project, query)
        warnings += [
            f'the regular expression "{pattern}" repeats a group that repeats: its time may double with each '
            "character of a text. Repeat one of the two only"
            for pattern in slow_patterns(query.tree)
        ]
    else:
        if not unknown:
            shape(view, schemas)
        summary = "; ".join([summary, *(f"{name} counts {how}" for name, how in view.counted_within.items())])
    if unknown:
        left_out = unchecked(project.folder, view, unknown)
        summary = f"{summary.replace('fine', 'well formed')}; not checked: {left_out}"
    return CheckedView(summary, tuple(warnings), plan)


def check_python(view: View | SqlView, transforms: Transforms, file: Path | None = None) -> None:
    """Raise ConfigError (HUB-2153) for a view with Python where ``transforms`` is ``off``. ``file``: the
    view's, if there is one."""
    key = "transforms" if view.transforms is not None else "python"
    named = view.transforms or (view.python if isinstance(view, SqlView) else None)
    if named is None or transforms != "off":
        return
    raise ConfigError(
        f'view "{view.name}": Python of views ({named.file}) is turned off here (`transforms: off`)',
        where=named.file if file is None else place(file, key),
        hint="write the expression in SQL, or set `transforms: sandboxed` in hub.yaml "
        "(HUB_TRANSFORMS=sandboxed): the code then reaches no network, no secrets and no other files",
        code="HUB-2153",
    )


def _check_stores(project: ViewProject, file: Path, view: View | SqlView) -> None:
    for name in view.stores:
        if name not in project.stores:
            raise ConfigError(
                f'view "{view.name}": store "{name}" is not in hub.yaml',
                where=str(file),
                hint=did_you_mean(name, project.stores, f"stores: {', '.join(project.stores)}"),
                code="HUB-2116",
            )


def unchecked(folder: Path, view: View | SqlView, unknown: list[str]) -> str:
    """Return what cannot be checked for sources without a schema until the hub runs, and why."""
    known = [file.stem for file in view_files(folder)]
    reasons = []
    for name in unknown:
        source = view.sources[name]
        if not isinstance(source, SqlSource) or source.view is None:
            reasons.append(f"no schema in topics.yaml for {name}")
        elif source.view in known:
            reasons.append(f"the types of {name}, which {source.view} has when it runs")
        else:
            guess = nearest(source.view, known)
            hint = f"; did you mean {guess}?" if guess else ""
            reasons.append(
                f"{name}: views/{source.view}.yaml does not exist here, and it waits for that view{hint}"
            )
    return ", ".join(reasons)


def _check_columns(project: ViewProject, query: Query) -> None:
    """Check that the views which a view reads have the columns it uses, as far as their files show."""
    files = {file.stem: file for file in view_files(project.folder)}
    for name, source in query.view.sources.items():
        if source.view not in files:
            continue
        other = load_view(files[source.view])
        if isinstance(other, SqlView) and other.python is not None:
            continue  # its columns are known when it is checked itself, and when it runs
        columns = (
            checked(other, project.schemas_of(other)[0]).columns
            if isinstance(other, SqlView)
            else tuple(other.columns)
        )
        known = {column.lower(): column for column in columns}
        for column in query.used[name]:
            if column.lower() not in known and not column.startswith("_"):
                raise ConfigError(
                    f'view "{query.view.name}": source "{name}": view "{source.view}" '
                    f'has no column "{column}"',
                    hint=did_you_mean(column, columns, f"it has {', '.join(columns)}"),
                    code="HUB-2101",
                )

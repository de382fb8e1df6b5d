"""[shell] The actions of the workbench: plan a statement, compute its preview, save it with its test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

from hub.caller import Action, Kind, Resource, may, require
from hub.errors import CallerError, Conflict, HubError
from hub.files import write_new
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, CaseOutcome, GoldenFile
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.statements.changes import ViewChange
from hub.materializers.queries.statements.grammar import CODE, CreateView, hub_statement
from hub.materializers.queries.statements.service import Statements
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.types.avro_types import AvroType
from hub.materializers.workbench.sampled_case import SampledCase, golden_text, sampled_case
from hub.materializers.workbench.samples import sample

MOST_ROWS = 200
_PLANNED = ("check", "warning", "engine", "because", "state", "stores", "key", "first run reads")


class ComputesPreviews(Protocol):
    """A process of previews. ``why_not``: why there are none; ""."""

    @property
    def why_not(self) -> str: ...

    def compute(self, view: SqlView, schemas: Mapping[str, AvroType], case: Case) -> CaseOutcome:
        """Raises ConfigError, PeerError."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """The workbench over one project and one cluster. ``changelog`` returns the topic of a view's rows.

    Methods block and raise SqlError, ConfigError, Forbidden, MaskRefused, PeerError.
    """

    statements: Statements
    topics: TopicTables
    previews: ComputesPreviews
    changelog: Callable[[str], str]

    def plan(self, text: str) -> dict[str, Any]:
        """Return the file that a statement makes, how the view is maintained, and who may save it."""
        return self._planned(self._drafted(create_view(text)))

    def preview(self, text: str, events: int) -> dict[str, Any]:
        """Return the plan, the rows of the newest ``events`` events of each source, and their golden test."""
        change = self._drafted(create_view(text))
        view = change.declared
        assert isinstance(view, SqlView)
        schemas, unknown = self.statements.files.schemas_of(view)
        if unknown:
            raise CallerError(
                f'view "{view.name}": no schema is registered for {", ".join(unknown)}',
                hint="register one: `hub schema infer` makes it of sample events",
                code="HUB-1473",
            )
        samples = {name: sample(self.topics, self._topic(view, name), events) for name in view.sources}
        made = sampled_case(view, schemas, samples)
        outcome = self.previews.compute(view, schemas, made.case)
        rows = list(outcome.rows.items())
        return {
            **self._planned(change),
            "sources": _sources(view, made),
            "columns": list(outcome.columns),
            "rows": [{"key": key, "row": dict(row)} for key, row in rows[:MOST_ROWS]],
            "more": max(0, len(rows) - MOST_ROWS),
            "dead": [{"event": number, "reason": reason} for number, reason in outcome.dead],
            "late": outcome.late,
            "test": golden_text(view.name, _test_name(made), made.case, outcome),
            "test_file": f"views/tests/{view.name}.yaml",
        }

    def save(self, text: str, test: str | None) -> dict[str, Any]:
        """Write the view's file as CREATE does, and a golden test if there is one. Raises Conflict too."""
        statement = create_view(text)
        change = self.statements.files.created(statement)
        if change is None:
            raise Conflict(f'view "{statement.name}" exists', code="HUB-1467")
        tested = None if test is None else self._test_file(change, test)
        self.statements.files.write(change)
        if tested is not None and test is not None:
            write_new({tested: test})
        written = [f"views/{change.file.name}", *([] if tested is None else [f"views/tests/{tested.name}"])]
        return {"view": change.view, "written": written}

    def _drafted(self, statement: CreateView) -> ViewChange:
        return self.statements.files.drafted(statement)

    def _planned(self, change: ViewChange) -> dict[str, Any]:
        """Return a draft as values. A caller who may not read the view sees nothing of its present file."""
        resource = Resource(Kind.view, change.view)
        known = change.before and may(Action.read, resource)
        why_not = "" if may(Action.admin, resource) else f"saving takes the role admin over {resource}"
        if not why_not and not self.statements.files.allowed:
            why_not = "the project is deployed read-only: sql_changes_views is off in hub.yaml"
        rows = self.statements.lists.change(change, "").rows
        return {
            "view": change.view,
            "file": f"views/{change.file.name}",
            "text": change.text,
            "exists": bool(change.before),
            "diff": change.diff if known or not change.before else [],
            "plan": [{"item": item, "value": value} for item, value in rows if item in _PLANNED],
            "why_not_saved": why_not,
            "why_no_preview": self.previews.why_not,
        }

    def _topic(self, view: SqlView, source: str) -> str:
        sql_source = view.sources[source]
        topic = sql_source.topic if sql_source.view is None else self.changelog(sql_source.view)
        if "*" in topic:
            raise CallerError(
                f'source "{source}" reads a pattern of topics, which has no preview',
                hint="try the statement with one of its topics",
                code="HUB-1473",
            )
        return topic

    def _test_file(self, change: ViewChange, text: str) -> Path:
        """Return the path of a new golden test. Raises CallerError for a text that is none of this view,
        Conflict for a file that exists."""
        require(Action.admin, Resource(Kind.view, change.view))
        path = change.file.parent / "tests" / change.file.name
        try:
            golden_file = GoldenFile.model_validate(yaml.safe_load(text))
        except (yaml.YAMLError, ValueError) as error:
            raise CallerError(f"the golden test is not valid: {str(error)[:300]}", code="HUB-1473") from None
        if golden_file.view != change.view:
            raise CallerError(f'the golden test is of view "{golden_file.view}"', code="HUB-1473")
        if path.exists():
            raise Conflict(
                f'"views/tests/{path.name}" exists',
                hint="save the view alone, and add the case to that file by hand",
                code="HUB-1467",
            )
        return path


def create_view(text: str) -> CreateView:
    """Parse the workbench's statement. Raises SqlError."""
    found = hub_statement(text)
    if not isinstance(found, CreateView):
        raise SqlError(
            "the workbench takes one CREATE MATERIALIZED VIEW",
            hint="CREATE MATERIALIZED VIEW name AS SELECT …",
            code=CODE,
            line=1,
        )
    return found


def statement_select(text: str) -> str:
    """Return the SELECT of a statement as it stands in the text; "" of one that cannot be parsed."""
    try:
        return create_view(text).sql
    except HubError:
        return ""


def _sources(view: SqlView, made: SampledCase) -> list[dict[str, Any]]:
    return [
        {
            "source": name,
            "topic": source.topic,
            "events": made.taken[name],
            "left_out": made.left_out[name],
        }
        for name, source in view.sources.items()
    ]


def _test_name(made: SampledCase) -> str:
    counts = ", ".join(f"{number} of {source}" for source, number in made.taken.items())
    return f"sampled events of {datetime.now(UTC):%Y-%m-%d}: {counts}"

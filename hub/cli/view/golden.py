"""[edge] ``hub view test``: golden tests of views, through Spark and without Kafka."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.progress import counted
from hub.cli.view.schemas_source import without_file
from hub.errors import ConfigError, HubError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hub.config import Settings
    from hub.materializers.definition.entity_view import View
    from hub.materializers.definition.sql_view import SqlView
    from hub.materializers.golden.cases import Case, CaseResult, GoldenFile
    from hub.materializers.golden.runner import GoldenRunner

FAILED = 1
_SLOTS = 2


def _golden_files(
    folder: Path, views: Mapping[str, View | SqlView], wrong: dict[str, ConfigError]
) -> list[GoldenFile]:
    """Load the test files; the error of each that cannot be used goes to ``wrong``."""
    from hub.materializers.golden.cases import golden_files, load_golden

    found = []
    for path in golden_files(folder):
        try:
            found.append(load_golden(path, views))
        except ConfigError as error:  # of a view that does not load the error is known already
            wrong.setdefault(path.stem, error)
    return found


def _show_verdicts(verdicts: Sequence[CaseResult], output: Output) -> None:
    if output is Output.json:
        rows = [{"view": v.view, "test": v.case, "passed": v.passed} for v in verdicts]
        pairs = zip(rows, verdicts, strict=True)
        show([{**row, "differences": [*verdict.differences]} for row, verdict in pairs], output)
        return
    show([{"view": v.view, "test": v.case, "": "ok" if v.passed else "FAILED"} for v in verdicts], output)
    for verdict in verdicts:
        for difference in verdict.differences:
            note(f"{verdict.view}, {verdict.case}: {difference}")


def run_tests(
    view: Annotated[str | None, typer.Argument(help="Only this view's tests. Default: all")] = None,
    project: Annotated[
        Path | None, typer.Option(help="The project folder. Default: the current project")
    ] = None,
    only: Annotated[str, typer.Option("--only", help="Only cases whose name contains this")] = "",
    output: OutputOption = Output.table,
) -> None:
    """Run the golden tests of a project's views: events in, exactly these rows out. Needs Java, no Kafka, no
    hub.

    They are in views/tests/*.yaml. Exit code 0: all pass; 1: at least one fails, and the differences are
    listed. A file that cannot
    be used is listed, the tests of the others run, and the exit code is 1.

    Example: hub view test customer_360 --only cancelled
    """
    settings = load_settings()
    folder = project or settings.project
    wrong: dict[str, ConfigError] = {}
    views = _views(settings, folder, view, wrong)
    cases = _cases(folder, views, view, only, wrong)
    with golden_runner(settings, folder, views) as runner, counted("testing") as say:
        verdicts = []
        for number, each in enumerate(cases, 1):
            verdicts.append(_verdict(runner, *each))
            say(number, len(cases))
    _show_verdicts(verdicts, output)
    failed = sum(not each.passed for each in verdicts)
    left_out = f", {len(wrong)} file{'s' * (len(wrong) > 1)} left out" if wrong else ""
    note(f"{len(verdicts) - failed} passed, {failed} failed{left_out}")
    if failed or (wrong and view is None):
        raise typer.Exit(FAILED)


def _views(
    settings: Settings, folder: Path, requested: str | None, wrong: dict[str, ConfigError]
) -> dict[str, View | SqlView]:
    """Return the project's views by name; files that cannot be used go to ``wrong``.

    Raises ConfigError or NotFound about the view asked for, and about functions where they are turned off.
    """
    from hub.materializers.definition.load import load_views
    from hub.materializers.planning.validation import check_python

    views = {
        each.name: each for each in load_views(folder, lambda path, error: wrong.update({path.stem: error}))
    }
    if requested in wrong:
        raise wrong[requested]
    if requested is not None and requested not in views:
        raise without_file(requested, views, folder)
    for name, view in views.items():
        check_python(view, settings.transforms, folder / "views" / f"{name}.yaml")
    return views


def _cases(
    folder: Path,
    views: dict[str, View | SqlView],
    requested: str | None,
    only: str,
    wrong: dict[str, ConfigError],
) -> list[tuple[str, str, Case]]:
    """Return view, name and case of each test asked for; files that cannot be used go to ``wrong`` and are
    named. Raises NotFound without any test.
    """
    cases = [
        (file.view, name, case)
        for file in _golden_files(folder, views, wrong)
        if requested in (None, file.view)
        for name, case in file.tests.items()
        if only.lower() in name.lower()
    ]
    if requested in wrong:
        raise wrong[requested]
    for refused in wrong.values():
        note(f"left out: {refused.message}" + (f" ({refused.hint})" if refused.hint else ""))
    if not cases:
        raise NotFound(
            "no test has that name",
            hint=f'a test is a file in "{folder / "views" / "tests"}": docs/how-to/test-a-view.md shows one',
            code="HUB-1416",
        )
    return cases


def _verdict(runner: GoldenRunner, view: str, name: str, case: Case) -> CaseResult:
    """Return the result of a case. A case that cannot run fails; the others still run."""
    from hub.materializers.golden.cases import CaseResult, differences

    try:
        return CaseResult(view, name, differences(case, runner.run(view, case)))
    except HubError as error:
        return CaseResult(view, name, [f"{error}{f' ({error.hint})' if error.hint else ''}"])


@contextmanager
def golden_runner(
    settings: Settings, folder: Path, views: Mapping[str, View | SqlView]
) -> Iterator[GoldenRunner]:
    from hub.cli.view.schemas_source import schemas_of
    from hub.materializers.golden.runner import GoldenRunner
    from hub.materializers.spark.building.builder import ViewBuilder

    schemas = {name: schemas_of(folder, each)[0] for name, each in views.items()}
    with tempfile.TemporaryDirectory(prefix="hub-view-test-") as temporary:
        home = Path(temporary)
        with _session(settings.model_copy(update={"home": home})) as session:
            builder = ViewBuilder(settings)
            yield GoldenRunner(session, views, schemas, home / "streams", builder.built)


@contextmanager
def _session(settings: Settings) -> Iterator[Any]:
    from hub.materializers.spark.session import open_session
    from hub.materializers.spark.slots import Slots

    cores = min(_SLOTS, os.cpu_count() or 1)
    session, gateway = open_session(settings, Slots(cores, cores, cores), settings.home / "spark.log")
    try:
        yield session
    finally:
        session.stop()
        gateway.stop()

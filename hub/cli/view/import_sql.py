"""[edge] ``hub import``: statements of ksqlDB and Flink SQL as files of a project."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.view.schemas_source import schemas_of
from hub.errors import CallerError, Conflict, NotFound, PeerError
from hub.files import NotRegular, read_bytes, write_text

if TYPE_CHECKING:
    from hub.importing.checking import ProjectCopy
    from hub.importing.project_files import ProjectFiles
    from hub.importing.report import StatementReport

app = typer.Typer(
    help="Import the statements of another streaming system as topics, schemas, views and connectors.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub import ksql shop.sql --dry-run; hub import flink shop.sql --into shop",
)
_MOST_BYTES = 2_000_000
_TIMEOUT_S = 20.0
EXIT_REFUSED = 1

FileArgument = Annotated[str, typer.Argument(metavar="FILE|URL|-", help="Statements; - is standard input")]
IntoOption = Annotated[
    Path | None, typer.Option("--into", help="The project folder. Default: the current project")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the report and the diff, write nothing")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Also write over files that exist and would change")
]
Take = Callable[["ProjectFiles", "ProjectCopy", str], "list[StatementReport]"]


@app.command("ksql")
def import_ksql(
    file: FileArgument,
    into: IntoOption = None,
    dry_run: DryRunOption = False,
    replace: ReplaceOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Make topics, schemas, views and connectors of ksqlDB's statements.

    The report has for each statement the files that it makes, how their results differ from ksqlDB's, or why
    it is refused and what to write instead. Each view is checked as `hub view validate` does before anything
    is written. Needs neither Kafka nor ksqlDB.

    Exit code 0: all statements are taken. 1: one is refused; the others are written.

    Example: hub import ksql shop.sql --dry-run
    """
    from hub.importing.ksql.importer import KsqlImport

    _import(
        file, into, dry_run, replace, output, lambda files, copy, text: KsqlImport(files, copy).take(text)
    )


@app.command("flink")
def import_flink(
    file: FileArgument,
    into: IntoOption = None,
    dry_run: DryRunOption = False,
    replace: ReplaceOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Make topics, schemas and views of Flink SQL's statements.

    The report, the checks and the exit codes are those of `hub import ksql`.

    Example: hub import flink shop.sql --dry-run
    """
    from hub.importing.flink.importer import FlinkImport

    def take(files: ProjectFiles, copy: ProjectCopy, text: str) -> list[StatementReport]:
        return FlinkImport(files, copy).take(text)

    _import(file, into, dry_run, replace, output, take)


def _import(file: str, into: Path | None, dry_run: bool, replace: bool, output: Output, take: Take) -> None:
    from hub.importing.checking import project_copy, project_texts
    from hub.importing.project_files import ProjectFiles
    from hub.importing.report import all_taken

    settings = load_settings() if into is None else load_settings(project=into)
    folder = into or settings.project
    text = statements_text(file)
    files = ProjectFiles.over(project_texts(folder))
    with project_copy(files.before, settings.store_urls, schemas_of) as copy:
        reports = take(files, copy, text)
    if not reports:
        raise CallerError(f'"{file}" has no statement', hint="statements end with a semicolon")
    _show(reports, files, dry_run, output)
    existing = files.existing()
    if not dry_run and existing and not replace:
        raise Conflict(
            f"{', '.join(existing)} would change: nothing is written",
            hint="read the diff with --dry-run, then write with --replace; git has the former text",
            code="HUB-1480",
        )
    if not dry_run:
        for path in files.changes():
            write_text(folder / path, files.made[path])
    _note_end(reports, files, folder, dry_run)
    if not all_taken(reports):
        raise typer.Exit(EXIT_REFUSED)


def statements_text(file: str) -> str:
    """Return the text of a file, a URL or standard input, up to 2 MB. Raises NotFound, PeerError,
    CallerError."""
    if file == "-":
        content = sys.stdin.buffer.read(_MOST_BYTES + 1)
    elif file.startswith(("http://", "https://")):
        try:
            with urllib.request.urlopen(file, timeout=_TIMEOUT_S) as answer:
                content = answer.read(_MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise PeerError(f"{file} cannot be read: {reason}", hint="save it, and name the file") from None
    else:
        try:
            content = read_bytes(Path(file), _MOST_BYTES + 1)
        except FileNotFoundError:
            raise NotFound(f'file "{file}" does not exist', hint="name a file, a URL or -") from None
        except (NotRegular, OSError) as error:
            raise CallerError(f'file "{file}" cannot be read: {error.strerror}') from None
    if len(content) > _MOST_BYTES:
        raise CallerError(f'"{file}" has more than {_MOST_BYTES} bytes', hint="import it in parts")
    return content.decode("utf-8", "replace").replace("\r\n", "\n")


def _show(reports: Sequence[StatementReport], files: ProjectFiles, dry_run: bool, output: Output) -> None:
    if output is Output.json:
        show_one(
            {
                "dry_run": dry_run,
                "statements": [each.as_json() for each in reports],
                "files": files.changes(),
                "existing": files.existing(),
                "diff": files.diff(),
            },
            output,
        )
        return
    show([_row(each) for each in reports], output, ("line", "outcome", "statement", "made"))
    for each in reports:
        for text in each.differs:
            note(f"line {each.line}: differs: {text}")
        for text in each.notes:
            note(f"line {each.line}: {text}")
        if each.why:
            note(f"line {each.line}: refused: {each.why}\n  Instead: {each.instead}")
    if dry_run:
        print("\n".join(files.diff()))


def _row(report: StatementReport) -> dict[str, Any]:
    return {
        "line": report.line,
        "outcome": report.outcome,
        "statement": report.statement,
        "made": ", ".join(report.made),
    }


def _note_end(reports: Sequence[StatementReport], files: ProjectFiles, folder: Path, dry_run: bool) -> None:
    counts = [sum(each.outcome == name for each in reports) for name in ("same", "differs", "refused")]
    note(
        f"{len(reports)} statements: {counts[0]} the same, {counts[1]} with differences, {counts[2]} refused;"
        f" {len(files.changes())} files {'would be written' if dry_run else 'written'} in {folder}"
    )
    if not dry_run and files.changes():
        note("Next: hub view validate, hub topic plan, hub schema plan, hub view test")

r"""[edge] prompt_toolkit: the shell of ``hub sql``, with psql's habits: ``;``, ``\d``, ``\x``, ``\watch``.

``script`` runs text without a terminal, data to standard output and remarks to standard error, and ends at
the first error; ``interactive`` goes on after one. Heavy parts are imported when they are used.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from hub.cli.query import push_rows
from hub.cli.query.sql_completion import completer
from hub.cli.query.sql_listings import Listing, relation_rows, saved_query_rows, topic_rows, view_rows
from hub.cli.query.sql_output import ShellOutput
from hub.cli.query.sql_session import SqlSession, StatementRefused
from hub.cli.terminal.rows import RowFormat, cell, footer, printable, rendered
from hub.errors import CallerError, HubError, nearest

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

_HELP = r"""
  SELECT …;        a query; it ends with a semicolon and may go over lines. A topic: FROM "crm.customers"
  … EMIT CHANGES;  rows as they come, until Ctrl-C: [FROM BEGINNING | FROM 'time'] [LIMIT n]
  CREATE [OR REPLACE] MATERIALIZED VIEW name [KEY (…)] AS SELECT …;   DROP MATERIALIZED VIEW name;
  SHOW VIEWS; SHOW TOPICS; SHOW QUERIES; DESCRIBE name; SHOW CREATE VIEW name; EXPLAIN SELECT … or CREATE …;
  \d               views                       \d NAME          columns of a view or a topic
  \dt              topics                      \dq              saved queries (queries/*.sql)
  \watch SECONDS   the last query again and again, until Ctrl-C
  \set NAME VALUE  the value of :NAME          \unset NAME
  \x               a record a block            \timing          how long each query took
  \o FILE          answers into a file         \o               back to the terminal
  \i FILE          run a file                  \q               leave (or Ctrl-D)
  Ctrl-C stops a query, Tab completes, the arrow keys go through the history.
"""
_SHORTEST_WATCH_S = 0.2
# SELECT …; \\watch 2
_BEHIND = re.compile(r";\s*(\\[a-z]+[^;\n]*)$")


class Shell:
    """State of one session: output target, format, parameters."""

    def __init__(
        self,
        session: SqlSession,
        *,
        form: RowFormat = RowFormat.table,
        parameters: Mapping[str, str] | None = None,
        out: TextIO | None = None,
        err: TextIO | None = None,
        sleep: Callable[[float], None] = time.sleep,
        dry_run: bool = False,
    ) -> None:
        self.session = session
        self.dry_run = dry_run
        self.form = form
        self.parameters = dict(parameters or {})
        self.expanded = self.timing = False
        self.last: str | None = None
        self.out = ShellOutput(out or sys.stdout, err or sys.stderr)
        self._sleep = sleep
        self._files = 0
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "d": self._describe,
            "dt": lambda _: self._table(topic_rows(self.session)),
            "dq": lambda _: self._table(saved_query_rows(self.session)),
            "x": self._toggle("expanded", "Records"),
            "timing": self._toggle("timing", "Timing"),
            "o": self.out.into,
            "i": self._include,
            "set": self._set,
            "unset": self._unset,
            "watch": self._watch,
            "?": lambda _: self.out.print_text(_HELP.strip("\n")),
            "q": self._quit,
        }

    # ---- text in

    def script(self, text: str) -> None:
        """Statements and commands of a text, until the first error. Raises HubError."""
        try:
            self._lines(text)
        except StatementRefused as error:
            self._point(error)
            raise
        finally:
            self.out.close()

    def _lines(self, text: str) -> None:
        from hub.materializers.queries.parser import is_complete, statements

        waiting = ""
        for line in text.splitlines(keepends=True):
            if line.lstrip().startswith("\\") and not _begun(waiting):
                self.command(line.strip())
                waiting = ""
                continue
            waiting += line
            if ";" in line and is_complete(waiting):
                for each in statements(waiting):
                    self.run(each)
                waiting = ""
        for each in statements(waiting):
            self.run(each)

    def interactive(self, input_: Input | None = None, output: Output | None = None) -> None:
        """Prompt after prompt, until the end of the input."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import PostgresLexer

        self.out.interactive = True
        prompt: PromptSession[str] = PromptSession(
            "hub=> ",
            multiline=True,
            prompt_continuation="   -> ",
            lexer=PygmentsLexer(PostgresLexer),
            completer=completer(self.session),
            complete_while_typing=False,
            history=FileHistory(str(history_file())),
            key_bindings=_keys(),
            enable_open_in_editor=True,
            input=input_,
            output=output,
        )
        self.out.print_text(r'Statements end with ";". \? helps, \d shows what there is, \q leaves.')
        while True:
            try:
                text = prompt.prompt().strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            try:
                self.entered(text)
            except KeyboardInterrupt:
                self.out.remark("Stopped.")
            except SystemExit:
                break
            except HubError as error:
                self._show(error)
        self.out.close()

    def entered(self, text: str) -> None:
        """Execute an entered text: a command, or statements. Raises HubError; SystemExit for ``\\q``."""
        from hub.materializers.queries.parser import statements

        if not text:
            return
        behind = None if text.startswith("\\") else _behind(text)
        if behind is not None:
            text = text[: behind.start() + 1]
        if text.startswith("\\"):
            self.command(text)
            return
        for each in statements(text):
            self.run(each)
        if behind is not None:
            self.command(behind[1])

    # ---- statements

    def run(self, sql: str) -> None:
        """Ask and print. Raises HubError."""
        kind, used = parsed_statement(sql)
        given = {name: self.parameters[name] for name in used if name in self.parameters}
        if kind == "push":
            self._follow(sql, given)
            return
        self.last = sql if kind == "query" else self.last
        started = time.monotonic()
        answer = self.session.ask(f"EXPLAIN {sql}" if kind == "change" and self.dry_run else sql, given)
        took_ms = (time.monotonic() - started) * 1000
        at_terminal = self.out.is_at_terminal
        self.out.write(rendered(answer, self.form, expanded=self.expanded, at_terminal=at_terminal))
        for line in footer(answer, timing_ms=took_ms if self.timing else None):
            if self.form is RowFormat.table and self.out.interactive:
                self.out.write(f"{line}\n")
            elif line.startswith(("Scanned", "Missing", "Cut", "Not up to date", "Time")) or answer.get(
                "more"
            ):
                self.out.remark(line)

    def _follow(self, sql: str, parameters: Mapping[str, str]) -> None:
        """Print the rows of a push query until its end, or Ctrl-C. Raises HubError."""
        for line, is_data in push_rows.lines(self.session.follow(sql, parameters), self.form):
            if is_data:
                self.out.write(f"{printable(line) if self.out.is_at_terminal else line}\n")
            else:
                self.out.remark(line)

    def command(self, text: str) -> None:
        r"""Execute a line that begins with a backslash. Raises HubError; SystemExit for ``\q``."""
        name, _, rest = text[1:].rstrip(";").strip().partition(" ")
        found = self._commands.get(name)
        if found is None:
            guess = nearest(name, self._commands)
            raise CallerError(
                f"no command \\{name[:40]}", hint=f"did you mean \\{guess}?" if guess else r"\? lists them"
            )
        try:
            arguments = shlex.split(rest)
        except ValueError as error:
            raise CallerError(f"\\{name}: {error}", hint="close the quotation mark") from None
        found(arguments)

    def _describe(self, arguments: list[str]) -> None:
        name = arguments[0].strip('"') if arguments else None
        self._table(view_rows(self.session) if name is None else relation_rows(self.session, name))

    def _table(self, listing: Listing) -> None:
        names, rows = listing
        columns = [
            {"name": name, "type": "long" if rows and isinstance(rows[0][name], int) else "string"}
            for name in names
        ]
        self.out.write(rendered({"columns": columns, "rows": rows}, self.form))

    def _toggle(self, name: str, label: str) -> Callable[[list[str]], None]:
        def toggle(arguments: list[str]) -> None:
            wanted = {"on": True, "off": False}.get(
                arguments[0] if arguments else "", not getattr(self, name)
            )
            setattr(self, name, wanted)
            self.out.remark(f"{label}: {'on' if wanted else 'off'}.")

        return toggle

    def _include(self, arguments: list[str]) -> None:
        if len(arguments) != 1:
            raise CallerError(r"\i takes a file")
        if self._files >= 4:
            raise CallerError(r"\i within \i within \i: too deep")
        try:
            text = Path(arguments[0]).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CallerError(f'file "{arguments[0]}" cannot be read: {error}') from None
        self._files += 1
        try:
            self._lines(text)
        finally:
            self._files -= 1

    def _set(self, arguments: list[str]) -> None:
        if not arguments:
            for name, value in self.parameters.items():
                self.out.print_text(f"{name} = {cell(value)}")
            return
        if not arguments[0].isidentifier():
            raise CallerError(
                f'"{arguments[0]}" is not a name of a parameter', hint=r"\set city Oslo, then :city"
            )
        self.parameters[arguments[0]] = " ".join(arguments[1:])

    def _unset(self, arguments: list[str]) -> None:
        for name in arguments:
            self.parameters.pop(name, None)

    def _watch(self, arguments: list[str]) -> None:
        if self.last is None:
            raise CallerError(r"\watch: run a query first", hint="run one, then watch it")
        try:
            seconds = max(_SHORTEST_WATCH_S, float(arguments[0]) if arguments else 2.0)
        except ValueError:
            raise CallerError(f'\\watch: "{arguments[0]}" is not a number of seconds') from None
        while True:
            self.out.print_text(f"{time.strftime('%a %H:%M:%S')} (every {seconds:g} s; Ctrl-C ends)")
            self.run(self.last)
            self._sleep(seconds)

    def _quit(self, _arguments: list[str]) -> None:
        raise SystemExit(0)

    def _show(self, error: HubError) -> None:
        if isinstance(error, StatementRefused):
            self._point(error)
        self.out.remark(f"Error {error.code}: {cell(error.message)}")
        if error.hint:
            self.out.remark(f"Hint: {cell(error.hint)}")

    def _point(self, error: StatementRefused) -> None:
        if error.caret:
            shown, _, pointer = error.caret.partition("\n")
            self.out.remark(f"{cell(shown)}\n{cell(pointer)}")


def history_file() -> Path:
    """Return the history file in the user's state folder. Only the user may read it: statements may hold
    private data.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "hub"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = state / "sql_history"
        file.touch(mode=0o600, exist_ok=True)
    except OSError:
        return Path(os.devnull)
    return file


def parsed_statement(sql: str) -> tuple[Literal["query", "push", "change", "other"], list[str]]:
    """Return the kind of a statement and the names of its parameters. Raises StatementRefused."""
    from hub.materializers.queries.parser import SqlError, parse, placeholders_in
    from hub.materializers.queries.push.statement import push_statement
    from hub.materializers.queries.statements.grammar import CreateView, DropView, hub_statement

    try:
        found = hub_statement(sql)
        if found is not None:
            return ("change" if isinstance(found, CreateView | DropView) else "other"), []
        push = push_statement(sql)
        if push is not None:
            return "push", placeholders_in(push.statement.tree)
        return "query", placeholders_in(parse(sql).tree)
    except SqlError as error:
        raise StatementRefused(error, error.caret) from None


def _begun(text: str) -> bool:
    """Return whether the text has more than comments."""
    from hub.materializers.queries.parser import SqlError, statements

    try:
        return bool(statements(text))
    except SqlError:
        return True


def _behind(text: str) -> re.Match[str] | None:
    """Return the match of the command after a finished statement; None within a text."""
    from hub.materializers.queries.parser import is_complete

    match = _BEHIND.search(text)
    return match if match is not None and is_complete(text[: match.start() + 1]) else None


def _keys() -> Any:
    """Enter ends a statement that ends with a semicolon, and a command; otherwise it begins a line."""
    from prompt_toolkit.key_binding import KeyBindings

    from hub.materializers.queries.parser import is_complete

    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.startswith("\\") or _behind(text) or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings

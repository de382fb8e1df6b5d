"""[core] Python functions of a view, in a file of its folder: names, parameters and result types, read
without running it.

::

    def digits(phone: pa.Array) -> Annotated[pa.Array, "string"]:     a batch at a time: Arrow arrays in and out
    def initials(name: str | None) -> str | None:                     a value at a time: Python's own
    class Tracker: on_event(self, event, timers), row(self) -> "…"    the events of a key, one after another

The view's SQL can call every function at the top level of the file whose name does not begin with ``_``, and
every *keyed class*: a class with ``on_event``, called as a function of the list of a key's events. The
result type comes from the annotation, so that a view can be checked where the file must not run (``hub view
validate``, another machine).
"""  # noqa: E501

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from hub.errors import ConfigError, nearest
from hub.materializers.types.ddl import TYPE_NAMES, UnknownType, of_ddl

_MOST_PARAMETERS = 16
_WRONG = "HUB-2151"

# SQL types of Python's types. A Decimal has no scale: its type must be given as DDL.
_VALUES: Mapping[str, str] = {
    "str": "string",
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "bytes": "binary",
    "datetime": "timestamp",
    "datetime.datetime": "timestamp",
    "date": "date",
    "datetime.date": "date",
}
_ARRAYS = ("pa.Array", "pyarrow.Array", "Array")


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function of a view. ``returns``: Spark's DDL. ``by_value``: called per value, else
    per batch. ``keyed``: the class whose state the function computes; empty for a plain function."""

    name: str
    line: int
    parameters: tuple[str, ...]
    returns: str
    by_value: bool
    keyed: str = ""


def digest(text: str) -> str:
    """Return a hash of a file's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=64)
def functions(text: str, file: str) -> tuple[Function, ...]:
    """Return the functions that a view may call, in the file's order. Raises ConfigError with file, line and
    function."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        problem = getattr(error, "msg", None) or str(error)
        raise ConfigError(
            f"no valid Python: {problem}", where=f"{file}:{line}" if line else file, code=_WRONG
        ) from None
    found: dict[str, Function] = {}
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_"):
            raise _wrong(file, node, "is async: SQL waits for nothing", "write def")
        made = _callable(node, file)
        if made is None:
            continue
        if made.name in found:
            raise _wrong(file, node, f"is there already, in line {found[made.name].line}", "rename one")
        found[made.name] = made
    if not found:
        raise ConfigError(
            "no function in it can be called",
            where=file,
            hint="def digits(phone: str) -> str: at the top of the file, with a name that "
            "does not begin with _",
            code=_WRONG,
        )
    return tuple(found.values())


def _callable(node: ast.stmt, file: str) -> Function | None:
    """Return what SQL may call of a statement: a function or a keyed class; None for any other statement."""
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        return _function(node, file)
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        return _keyed(node, methods, file) if "on_event" in methods else None
    return None


# Methods of a keyed class, with the number of their parameters including self.
_METHODS: Mapping[str, int] = {"__init__": 1, "on_event": 3, "on_timer": 4, "row": 1}
_SIGNATURES = (
    "a keyed class has on_event(self, event, timers), row(self) -> its type, and optionally __init__(self) "
    "and on_timer(self, name, at, timers)"
)


def _keyed(node: ast.ClassDef, methods: Mapping[str, ast.FunctionDef], file: str) -> Function:
    """Return a keyed class as the function of its key's events."""
    if node.name.upper() in _SQL_HAS:
        raise _wrong(file, node, "is called like a function of SQL", f"rename it, such as Own{node.name}")
    row = methods.get("row")
    if row is None:
        raise _wrong(file, node, "has no method row, which returns the columns of the key", _SIGNATURES)
    for name, expected in _METHODS.items():
        given = methods.get(name)
        if given is None:
            continue
        arguments = given.args
        required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
        if required != expected or any(each is None for each in arguments.kw_defaults):
            raise _wrong(file, given, f"of {node.name} has other parameters", _SIGNATURES)
    if row.returns is None:
        raise _wrong(file, row, f"of {node.name} has no return annotation", _HINT)
    returns = _given(row, row.returns, file)
    return Function(node.name.lower(), node.lineno, ("events",), returns, True, node.name)


def _wrong(file: str, node: ast.AST, what: str, hint: str) -> ConfigError:
    name, line = getattr(node, "name", "?"), getattr(node, "lineno", 1)
    kind = "class" if isinstance(node, ast.ClassDef) else "function"
    return ConfigError(f'{kind} "{name}" {what}', where=f"{file}:{line}", hint=hint, code=_WRONG)


def _function(node: ast.FunctionDef, file: str) -> Function:
    if not node.name.islower() or not node.name.isidentifier():
        raise _wrong(
            file,
            node,
            "has a name that differs only in case from another, which SQL ignores",
            "use lower-case letters, digits and _",
        )
    if node.name.upper() in _SQL_HAS:
        raise _wrong(file, node, "is called like a function of SQL", f"rename it, such as own_{node.name}")
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise _wrong(file, node, "takes arguments that SQL cannot give", "name each one, without defaults")
    parameters = [*arguments.posonlyargs, *arguments.args]
    if not 0 < len(parameters) <= _MOST_PARAMETERS:
        raise _wrong(
            file,
            node,
            f"has {len(parameters)} parameters",
            f"it is a function of 1 to {_MOST_PARAMETERS} columns",
        )
    if node.returns is None:
        raise _wrong(file, node, "has no type of its result", _HINT)
    arrays = [_is_array(each.annotation) for each in parameters]
    bare = next((each.arg for each in parameters if each.annotation is None), None)
    if bare is not None:
        raise _wrong(
            file, node, f'does not say what "{bare}" is', "a value (str, int, …), or pa.Array: a whole batch"
        )
    if any(arrays) and not all(arrays):
        raise _wrong(
            file, node, "takes batches and values", "write pa.Array for all of its parameters, or for none"
        )
    return Function(
        node.name,
        node.lineno,
        tuple(each.arg for each in parameters),
        _given(node, node.returns, file),
        not any(arrays),
    )


_HINT = 'a value: -> str; of a batch: -> Annotated[pa.Array, "string"], with the type as Spark writes it'


def _is_array(annotation: ast.expr | None) -> bool:
    return annotation is not None and _annotation_text(annotation) in _ARRAYS


def _annotation_text(annotation: ast.expr) -> str:
    """Return an annotation as written, without quotes if it is a string."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.strip()
    return ast.unparse(annotation)


def _given(node: ast.FunctionDef, annotation: ast.expr, file: str) -> str:
    """Return the result type of a function as DDL. Raises ConfigError when it has no SQL type."""
    written: str | None = None
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).split(".")[-1] == "Annotated":
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        written = next(
            (p.value for p in parts[1:] if isinstance(p, ast.Constant) and isinstance(p.value, str)), None
        )
    elif isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [annotation.left, annotation.right]
        others = [each for each in sides if ast.unparse(each) != "None"]
        if len(others) == 1:
            return _given(node, others[0], file)
    elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).split(".")[-1] == "Optional":
        return _given(node, annotation.slice, file)
    else:
        annotated = _annotation_text(annotation)
        if annotated in _VALUES:
            return _VALUES[annotated]
        if isinstance(annotation, ast.Constant):
            written = annotated
    if written is None:
        raise _wrong(file, node, f"gives `{ast.unparse(annotation)}`, which has no type in SQL", _HINT)
    try:
        of_ddl(written)
    except UnknownType as error:
        guess = nearest(error.word, TYPE_NAMES)
        hint = f"did you mean {guess}?" if guess else f"types: {', '.join(TYPE_NAMES)}"
        raise _wrong(file, node, f"gives {error}", hint) from None
    return written


_SQL_HAS = frozenset(Dialect.get_or_raise("spark").parser_class.FUNCTIONS) | {
    name.upper() for name in exp.FUNCTION_BY_NAME
}


def misused(tree: exp.Expr, known: Iterable[Function]) -> tuple[str, str] | None:
    """Return (problem, hint) for the first call with a wrong number of arguments; None if there is none."""
    by_name = {each.name: each for each in known}
    for node in tree.find_all(exp.Anonymous):
        function = by_name.get(node.name.lower())
        if function is None or len(node.expressions) == len(function.parameters):
            continue
        wanted = ", ".join(function.parameters)
        return (
            f"`{node.sql('spark')[:80]}` gives {len(node.expressions)} arguments",
            f"{function.name}({wanted}), line {function.line} of its file",
        )
    return None


def called(tree: exp.Expr, known: Iterable[Function]) -> Function | None:
    """Return the first of the functions that an expression calls, None if it calls none."""
    by_name = {each.name: each for each in known}
    calls = (by_name.get(node.name.lower()) for node in tree.find_all(exp.Anonymous))
    return next((each for each in calls if each is not None), None)

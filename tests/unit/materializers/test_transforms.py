"""Python functions of a view, read without running them: their types, and errors with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.view.golden import run_tests
from hub.config import Settings
from hub.errors import ConfigError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.load import definition_text, files_of, load_view
from hub.materializers.definition.python_functions import functions
from hub.materializers.definition.sql_checks import query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.validation import check_python
from hub.materializers.spark.python_udf_worker import KeyedFold, Timers, UdfCall
from hub.materializers.types.avro_types import AvroType

EXAMPLES = Path(__file__).parents[3] / "examples"
ON_EVENT = "def on_event(self, e, t): ..."
ORDERS: AvroType = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "phone", "type": "string"}],
}


@pytest.mark.parametrize(
    ("signature", "returns", "by_value"),
    [
        ("(a: str) -> str", "string", True),
        ("(a: int | None, b: float) -> int | None", "bigint", True),
        ("(a: str) -> Optional[datetime.date]", "date", True),
        ('(a: "str") -> "bool"', "boolean", True),
        ('(a: str) -> "array<string>"', "array<string>", True),
        ('(a: Decimal) -> Annotated[Decimal | None, "decimal(10,2)"]', "decimal(10,2)", True),
        ('(a: pa.Array) -> Annotated[pa.Array, "timestamp"]', "timestamp", False),
        ('(a: pyarrow.Array, b: pyarrow.Array) -> "struct<a: int>"', "struct<a: int>", False),
    ],
)
def test_what_a_function_takes_and_gives(signature: str, returns: str, by_value: bool) -> None:
    (found,) = functions(f"import os\n\ndef clean{signature}: ...\n\ndef _own(a): ...\n", "f.py")
    assert (found.name, found.line, found.returns, found.by_value) == ("clean", 3, returns, by_value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("def f(a: str) -> str: ...\ndef g(", 2, "no valid Python"),
        ("\ndef f(a: str): ...", 2, "has no type of its result"),
        ("def f(a) -> str: ...", 1, 'does not say what "a" is'),
        ("def f(a: pa.Array, b: str) -> str: ...", 1, "batches and values"),
        ("def f(a: pa.Array) -> pa.Array: ...", 1, "has no type in SQL"),
        ("def f(a: str) -> Decimal: ...", 1, "has no type in SQL"),
        ('def f(a: str) -> "strnig": ...', 1, "type `strnig` does not exist"),
        ("def f() -> str: ...", 1, "0 parameters"),
        ("def f(*a: str) -> str: ...", 1, "SQL cannot give"),
        ("def f(a: str = '') -> str: ...", 1, "SQL cannot give"),
        ("def upper(a: str) -> str: ...", 1, "like a function of SQL"),
        ("def Clean(a: str) -> str: ...", 1, "differs only in case"),
        ("async def f(a: str) -> str: ...", 1, "async"),
        ("def f(a: str) -> str: ...\ndef f(a: str) -> str: ...", 2, "line 1"),
        ("def _f(a): ...", None, "no function"),
        ("class T:\n    def on_event(self, e, t): ...", 1, "has no method row"),
        ("class T:\n    def on_event(self, e): ...\n    def row(self) -> str: ...", 2, "other parameters"),
        (f"class T:\n    {ON_EVENT}\n    def row(self): ...", 3, "has no return annotation"),
        (f"class Sum:\n    {ON_EVENT}\n    def row(self) -> str: ...", 1, "a function of SQL"),
        (
            f"class T:\n    def __init__(self, n): ...\n    {ON_EVENT}\n    def row(self) -> str: ...",
            2,
            "other parameters",
        ),
        (
            f"def t(a: str) -> str: ...\nclass T:\n    {ON_EVENT}\n    def row(self) -> str: ...",
            2,
            "there already, in line 1",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text: str, line: int | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        functions(text, "views/f.py")
    assert raised.value.where == (f"views/f.py:{line}" if line else "views/f.py")
    assert raised.value.code == "HUB-2151"


def test_a_class_with_events_is_a_function_of_their_list() -> None:
    text = (
        "class Plain: ...\n\nclass Tracker:\n    def on_event(self, e, timers, more=1): ...\n"
        '    def row(self) -> "struct<a: int>": ...\n'
    )
    (found,) = functions(text, "f.py")
    assert (found.name, found.keyed, found.line) == ("tracker", "Tracker", 3)
    assert (found.parameters, found.returns, found.by_value) == (("events",), "struct<a: int>", True)


class Recorded:
    """Records the order of calls. An event may set (``set``) and cancel (``cancel``) timers."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_event(self, event: dict[str, Any], timers: Timers) -> None:
        self.calls.append(event["at"])
        for name, at in event.get("set", {}).items():
            timers.set(name, at)
        if "cancel" in event:
            timers.cancel(event["cancel"])

    def on_timer(self, name: str, at: Any, timers: Timers) -> None:
        self.calls.append((name, at))
        if name.startswith("again"):
            timers.set(name, at + int(name.removeprefix("again")))

    def row(self) -> list[Any]:
        return self.calls


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        ([], []),
        ([{"at": 1, "set": {"a": 5}}, {"at": 4}, {"at": 5}], [1, 4, ("a", 5), 5]),
        ([{"at": 1, "set": {"b": 5, "a": 5, "c": 3}}, {"at": 9}], [1, ("c", 3), ("a", 5), ("b", 5), 9]),
        ([{"at": 1, "set": {"a": 5}}, {"at": 2, "set": {"a": 7}}, {"at": 6}], [1, 2, 6]),
        ([{"at": 1, "set": {"a": 5}}, {"at": 2, "cancel": "a"}, {"at": 6}], [1, 2, 6]),
        ([{"at": 1, "set": {"a": 5}}], [1]),
        ([{"at": None, "set": {"a": 2}}, None, {"at": 3}], [None, ("a", 2), 3]),
        ([{"at": 0, "set": {"again3": 3}}, {"at": 8}], [0, ("again3", 3), ("again3", 6), 8]),
    ],
)
def test_timers_are_called_before_the_event_that_reaches_them(events: list[Any], calls: list[Any]) -> None:
    assert KeyedFold(Recorded)(events) == calls
    assert KeyedFold(Recorded)(events) == calls  # the next key begins with an object of its own


@pytest.mark.parametrize(
    ("again", "said"), [("again0", "must be later than 3"), ("again1", "called 100000 times")]
)
def test_timers_that_never_end_are_an_error_at_their_event(again: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        KeyedFold(Recorded)([{"at": 0, "set": {again: 3}}, {"at": 10**9}])
    assert raised.value.__notes__ == ["at event {'at': 1000000000}"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=20))
def test_each_timer_is_called_once_between_its_events(pairs: list[tuple[int, int]]) -> None:
    """Timers of different names: each with a later event is called once, in the order of time."""
    events: list[dict[str, Any]] = [
        {"at": at, "set": {f"t{n}": at + wait}} for n, (at, wait) in enumerate(sorted(pairs))
    ]
    calls = KeyedFold(Recorded)(events)
    times = [each[1] if isinstance(each, tuple) else each for each in calls]
    assert times == sorted(times)
    end = max((event["at"] for event in events), default=0)
    due = [(name, at) for event in events for name, at in event["set"].items() if at <= end]
    assert sorted(each for each in calls if isinstance(each, tuple)) == sorted(due)


# ---- in a view


def project(
    folder: Path, fields: str, source: str = "", code: str = "def clean(p: str) -> str: ...\n"
) -> Any:
    (folder / "words.py").write_text(code)
    file = folder / "v.yaml"
    file.write_text(
        f"view: v\ntransforms: words.py\nsources:\n  o: {{topic: shop.orders, key: "
        f"id{source}}}\nfields: {{{fields}}}\n"
    )
    return load_view(file)


def test_a_view_calls_its_functions(tmp_path: Path) -> None:
    view = project(
        tmp_path, "phone: clean(o.phone), last: max(clean(o.phone))", ", where: clean(phone) <> ''"
    )
    made = shape(view, {"o": ORDERS})
    assert made.outputs[0] == ("phone", "CLEAN(l_o.phone)")
    assert made.sources[0].where == "CLEAN(e_o.phone) <> ''"


def test_an_order_by_a_function_that_gives_a_time_is_a_time(tmp_path: Path) -> None:
    code = "def clean(p: str) -> datetime: ...\n"
    view = project(tmp_path, "n: o.id", ", order: clean(phone)", code)
    assert shape(view, {"o": ORDERS}).sources[0].order_is_time
    assert (
        not shape(project(tmp_path, "n: o.id", ", order: clean(phone)"), {"o": ORDERS})
        .sources[0]
        .order_is_time
    )


def test_a_call_with_other_arguments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gives 2 arguments") as raised:
        shape(project(tmp_path, "phone: 'clean(o.phone, 1)'"), {"o": ORDERS})
    assert raised.value.hint == "clean(p), line 1 of its file"
    with pytest.raises(ConfigError, match="gives 0 arguments"):
        query_of(
            SqlView.model_validate(
                {
                    "view": "v",
                    "sources": {"o": {"topic": "t"}},
                    "sql": "SELECT clean() AS c, o.id FROM o",
                    "key": "id",
                    "transforms": {"file": "w.py", "text": "def clean(p: str) -> str: ..."},
                }
            )
        )


def test_a_function_over_entries_of_a_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Python function clean"):
        shape(project(tmp_path, "last: max(clean(o.phone))", ", unique_by: id"), {"o": ORDERS})


def test_a_function_is_found_from_the_views_folder_and_kept_with_the_view(tmp_path: Path) -> None:
    view = project(tmp_path, "n: count(o.id)")
    assert view.transforms.text == "def clean(p: str) -> str: ...\n"
    assert files_of(tmp_path / "v.yaml") == (tmp_path / "v.yaml", tmp_path / "words.py")
    before = definition_text(tmp_path / "v.yaml")
    (tmp_path / "words.py").write_text("def other(p: str) -> str: ...\n")
    assert definition_text(tmp_path / "v.yaml") != before
    assert "def other" in definition_text(tmp_path / "v.yaml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("transforms: wrods.py", "did you mean words.py?"),
        ("transforms: ../words.py", "pattern|folder"),
        ("transforms: words.py\nmode: realtime", "real-time mode has none"),
    ],
)
def test_a_file_that_is_not_there_or_not_allowed(tmp_path: Path, line: str, said: str) -> None:
    project(tmp_path, "n: count(o.id)")
    file = tmp_path / "v.yaml"
    file.write_text(file.read_text().replace("transforms: words.py", line))
    with pytest.raises(ConfigError) as raised:
        load_view(file)
    assert any(word in f"{raised.value.message} {raised.value.hint}" for word in said.split("|"))


def test_a_setting_turns_them_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = project(tmp_path, "n: count(o.id)")
    with pytest.raises(ConfigError) as raised:
        check_python(view, Settings(transforms="off").transforms, tmp_path / "v.yaml")
    assert raised.value.code == "HUB-2153"
    assert raised.value.where == f"{tmp_path / 'v.yaml'}:2:13"
    check_python(view, Settings().transforms)
    monkeypatch.setenv("HUB_TRANSFORMS", "false")
    with pytest.raises(ConfigError, match="turned off"):
        run_tests(None, EXAMPLES / "formats", "")


# ---- called


def test_a_batch_that_fails_names_the_row() -> None:
    def half(number: int | None) -> int | None:
        return None if number is None else 10 // number

    call = UdfCall(half, "half", __file__, pa.int64(), True)
    assert call(pa.array([5, None])).to_pylist() == [2, None]
    with pytest.raises(RuntimeError, match=r'ZeroDivisionError.*"values": "\(0,\)"'):
        call(pa.array([5, 0, 1]))


def test_what_is_given_has_the_type_and_the_length_that_is_said() -> None:
    def same(number: pa.Array) -> pa.Array:
        return number

    assert UdfCall(same, "same", __file__, pa.int64(), False)(pa.array([1], pa.int32())).type == pa.int64()
    with pytest.raises(RuntimeError, match="must give pa.Array"):
        UdfCall(lambda _: [1], "f", __file__, pa.int64(), False)(pa.array([1]))
    with pytest.raises(RuntimeError, match="gave 1 values of 2 rows"):
        UdfCall(lambda n: n.slice(1), "f", __file__, pa.int64(), False)(pa.array([1, 2]))

"""Templates name attributes that the code has: mypy does not read them, and a page fails only when shown."""

from __future__ import annotations

import re
from pathlib import Path

import hub

HUB = Path(hub.__file__).parent


def test_every_attribute_in_a_template_is_a_name_of_the_code() -> None:
    code = " ".join(path.read_text(encoding="utf-8") for path in HUB.rglob("*.py"))
    names = set(re.findall(r"\b[a-z_][a-z_0-9]*\b", code))
    used = {
        (attribute, path.name)
        for path in HUB.rglob("*.html")
        for expression in re.findall(r"\{[{%].*?[%}]\}", path.read_text(encoding="utf-8"), re.DOTALL)
        for attribute in re.findall(r"\.([a-z_][a-z_0-9]*)\b", expression)
    }
    assert len(used) > 500
    assert {each for each in used if each[0] not in names} == set()

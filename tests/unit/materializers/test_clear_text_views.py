"""Views with clear text of encrypted fields, through any number of views."""

from __future__ import annotations

import json

from hub.materializers.definition.load import clear_text_views


def body(topic: str, **more: object) -> str:
    return json.dumps({"sources": {"s": {"topic": topic, **more}}})


def test_a_view_over_a_view_that_decrypts_has_clear_text_too() -> None:
    found = clear_text_views(
        {
            "people": [body("crm.people"), body("crm.people", decrypt=True)],  # one of its versions
            "v_over": [body("views.people.v2")],
            "above": [body("views.v_over")],
            "sealed": [body("crm.people", decrypt=False)],
            "other": [body("views.peoples"), json.dumps({"view": "other"})],
        }
    )
    assert found == {"people", "v_over", "above"}

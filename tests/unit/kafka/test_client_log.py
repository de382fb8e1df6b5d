"""Lines of Kafka's client: in the log of a process, and not between the lines of a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

_LINE = "from hub.kafka.contact.client_log import client_log; client_log.warning('FAIL broker is away')"


@pytest.mark.parametrize(
    ("before", "printed"), [("", False), ("import logging; logging.basicConfig(); ", True)]
)
def test_lines_are_printed_where_a_log_is_configured(before: str, printed: bool) -> None:
    """`hub doctor` and `hub schema restore` printed raw lines of librdkafka."""
    done = subprocess.run([sys.executable, "-c", before + _LINE], capture_output=True, text=True, check=True)
    assert ("FAIL broker is away" in done.stderr) is printed

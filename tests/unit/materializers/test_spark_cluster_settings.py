"""Spark's settings for a cluster; without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from hub.config import Settings
from hub.materializers.spark.session_settings import cluster_settings, java_message


@pytest.mark.parametrize(
    ("host", "bound"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("hub-1", "0.0.0.0")]
)
def test_a_driver_listens_where_its_executors_look_for_it(host: str, bound: str) -> None:
    settings = Settings(spark_master="spark://m:7077", spark_driver_host=host)
    conf = cluster_settings(settings, [Path("/jars/a.jar"), Path("/jars/b.jar")])
    assert conf["spark.master"] == "spark://m:7077"
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == (host, bound)
    assert conf["spark.jars"] == "/jars/a.jar,/jars/b.jar"


def test_javas_own_words_are_told() -> None:
    said = (
        "An error occurred while calling None.X.\n: java.lang.IllegalStateException: "
        "stopped\n\tat a.b(C.java:1)"
    )
    assert java_message(Py4JError(said)) == "java.lang.IllegalStateException: stopped"
    assert java_message(Py4JError("no answer")) == "no answer"

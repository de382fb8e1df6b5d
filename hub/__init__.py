"""An event-log-centric integration hub: one ordered log of typed events; everything else is derived from it.

Packages import downwards only::

    cli                                    one folder a group of commands; the composition root
    client                                 the hub from Python, over HTTP alone; imports no package of the server
    api                                    the HTTP app: every package's routes, errors as status codes
    demo                                   sample systems whose events fill the log
    completeness                           counts of what was written and what arrived; canaries
    materializers replication observability    (siblings: they do not import each other)
    alerts                                 rules on objectives; people are notified once
    access topics                          who may do what; the tree of topics: settings, plan, publishing
    schema_registry                        Confluent's REST API over the log ``_schemas``
    config kafka runtime embedded formats yaml files   edges: settings, Kafka's clients, the process loop, local processes, files
    home_key security hosts shares         keys, TLS and SASL, allowed hosts, limits per caller
    log                                    [core] the ports to a log, each with an in-memory implementation
    record metrics tracing caller csv_cells    values and small tools that every package may use
    errors                                 [core] the one error tree
"""  # noqa: E501

from __future__ import annotations


def main() -> None:
    """Run the command line. Exit code 1, with the way out, where packages of the server are missing."""
    import sys

    try:
        from hub.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "hub":
            raise
        print(
            f"Error: the command line needs the package {error.name}, which is not installed\n"
            "Hint: pip install 'event-hub[all]'; without extras only the Python client is installed",
            file=sys.stderr,
        )
        sys.exit(1)
    run()

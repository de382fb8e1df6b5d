"""Alerts: evaluate the objectives of topics and views, and notify people once.

::

    topics.yaml, views/*.yaml  slo ─┐                         ┌─▶ webhook
    alerts/*.yaml              SQL ─┼▶ observations ─▶ step ──┼─▶ Slack      a thread and a bounded queue each
    alerts.yaml     routes, rules ─┘                  │       └─▶ e-mail
                                                      ▼
                                        _hub.alerts   compacted: firing, pending, past, groups, silences, notifications to send

An observation is GOOD, BAD or UNKNOWN at a time. UNKNOWN neither fires nor ends an alert. ``step`` is pure:
rules, observations, the previous state and the time go in; the new state and notifications come out. Every
decision is written to the log before a channel is called, so a restart neither repeats nor forgets. While
Kafka is unavailable, decisions are kept in memory and written later, because that is when alerts matter.

    model/                 [core]  rules, observations, the state machine, the records of ``_hub.alerts``
    config/                alerts.yaml and alerts/*.yaml, reloaded when they change
    export/                [core]  the same rules for Prometheus, and a Grafana dashboard
    delivery/              notifications as messages; queues with retries; HTTP and SMTP
    alert_manager.py       [shell] the loop: observe, decide, write, send
    alert_log.py           [shell] stored decisions, and which server may write them
    snapshot.py            [core]  the present state for readers
    alert_series.py        [core]  the series for ``/metrics``
    alerts_json.py         [core]  the JSON of ``/api/alerts``
    runbooks.py            [shell] the pages that explain each alert and its remedy
    routes.py              [edge]  FastAPI
"""  # noqa: E501

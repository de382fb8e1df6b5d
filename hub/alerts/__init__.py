"""Alerts: what the topic tree and views promise, watched, and told to people once.

::

    topics.yaml, views/*.yaml  slo ─┐                         ┌─▶ webhook
    alerts/*.yaml              SQL ─┼▶ observations ─▶ step ──┼─▶ Slack      a thread and a bounded queue each
    alerts.yaml     routes, rules ─┘                  │       └─▶ e-mail
                                                      ▼
                                        _hub.alerts   compact: firing, pending, past, groups, silences, what is to be sent

An observation is GOOD, BAD or UNKNOWN at a time; UNKNOWN neither fires nor ends anything. ``step`` is pure: rules,
observations, what was before and the time in; what is now and notifications out. All it decides is written to the log
before a channel is asked, so a restart neither repeats nor forgets; while Kafka is away it is kept here and written
later, because that is when alerts matter.

core   ``rules`` what can be told · ``engine`` pending, firing, resolved, groups, silences · ``facts`` records of the log ·
       ``files`` alerts.yaml and alerts/*.yaml · ``reading`` errors kept to their entries · ``matching`` labels · ``listing`` their order · ``payloads`` what channels
       are sent · ``exported`` Prometheus rules and a Grafana dashboard · ``runbooks``
shell  ``desk`` the loop · ``outbox`` queues and retries · ``live`` files that change
edge   ``channels`` HTTP and SMTP · ``routes`` FastAPI
"""

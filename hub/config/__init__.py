"""Settings: ``hub.yaml`` in the project folder, overridden by ``HUB_*`` variables. The only home of defaults.

::

    settings.py   [edge] all settings, where they come from, and what follows from them
    kafka.py      [edge] folders, and the Kafka that the hub uses
    server.py     [edge] ports of the server, its limits, and who may ask
    views.py      [edge] stores, Spark, and limits of views
    operation.py  [edge] lag, outbox, backup, connectors, alerts, timeouts
    urls.py       [core] credentials in URLs
"""

from hub.config.operation import SLOT_WAL_MB
from hub.config.settings import Settings
from hub.config.urls import with_credentials, without_credentials
from hub.config.views import SERVING

__all__ = ["SERVING", "SLOT_WAL_MB", "Settings", "with_credentials", "without_credentials"]

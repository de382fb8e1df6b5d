"""[edge] FastAPI: the pages for browsers, and their JSON at the same addresses below ``/api``. One module has
the router of one page or of a small group.

A page may share its address with an API route (``/topics``, ``/views/{view}``): requests that accept HTML get
the page, all others the API's answer. Errors of pages are pages. Parts that query Kafka load after the page,
from ``/ui``.

    page_router.py   registers a page and its JSON; the frame around every page
    all_pages.py     all routers together, and the page for unknown addresses
    topics.py, messages.py, schemas.py, search.py, query.py                        what there is
    views.py, lag.py, completeness.py, lineage.py, alerts.py, cluster.py           how it goes
"""

"""[core] Pages for browsing: ``topics.py`` (tree), ``topic.py`` (one topic), ``messages.py`` (its messages),
``schemas.py`` (registry), ``lookup.py`` (a row of a view), ``search.py`` (full-text search)."""

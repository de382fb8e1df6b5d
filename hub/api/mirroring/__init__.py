"""Operations on mirrors that the server carries out: the functions of hub/replication/operations behind the
port of the pages (hub.observability.web.pages.estate.HasMirrorOperations). In a package of the API because
pages and replication do not import each other.

operations.py  [shell]  plan and carry out a request, one at a time
"""

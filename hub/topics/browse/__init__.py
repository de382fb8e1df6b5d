"""One topic in detail.

- ``describe.py`` [shell] settings and their origin, sizes, groups.
- ``browse.py`` [shell] messages; ``tail.py`` [shell] new ones as they come.
- ``rendered.py`` [core] a record as readable text.
- ``readers.py`` [shell] consumer groups that read a topic.
- ``routes.py`` [edge] FastAPI.
"""

"""Plans of a view: which definition, schemas, topics and generation one of its versions runs with.

``planner.py`` makes a plan and finds that it is stale. ``definitions.py`` chooses the definition,
``generations.py`` the generation. ``compile.py`` compiles a view; ``source_schemas.py`` reads its sources'
schemas, ``schema_watch.py`` asks for the schema ids that events name, and ``unknown_schema_ids.py`` remembers
those that no registry knew. ``fingerprints.py`` says whether a plan fits a checkpoint, ``checkpoint_note.py``
keeps that beside it, ``topics.py`` creates topics, and ``slot_demand.py`` counts task slots.
"""

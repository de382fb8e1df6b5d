"""[core] Pages that show what there is: ``topics.py`` the tree, ``topic.py`` one topic, ``messages.py`` its messages,
``schemas.py`` the registry, ``lookup.py`` a row of a view, ``search.py`` everything by words.
"""

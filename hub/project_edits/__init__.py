"""Edits of the project's YAML files by the server: git stays the truth, and comments and order stay.

- ``yaml_text.py`` [core] set a value, or append to a list, in the text of a YAML file.
- ``project_file.py`` [shell] read such a file, and whether it may be written.
"""

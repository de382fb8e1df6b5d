"""Text searches of callers: ``q`` of a list of rows, within what the caller sees.

A search reads only the text fields that are shown to the caller as they are, and only rows that the caller
sees. A masked field neither matches, nor ranks, nor is highlighted.

    search.py  [shell] one search: its fields, its page of rows with scores and highlights, its cursor
"""

"""[core] The page: how values read to people. Templates and static files lie beside; ``routes.py`` serves them.
The pages beside the overview are in ``pages/``, and share ``templates/shell.html`` with it.

``format.py`` numbers, durations, times · ``tree.py`` topics by their labels · ``svg.py`` sparklines · ``card.py`` a row
with its provenance · ``page.py`` [edge] Jinja2. ``static/live.js`` refreshes in place (no element is replaced that did
not change, so focus, selection and open parts stay) and lights up what changed in the looked-up row.
"""

"""[core] The web app: formatting, layout and pages. Templates and static files are in ``templates/`` and
``static/``.

``layout.py`` holds the navigation and the breadcrumbs. ``tree.py`` groups topics by labels. ``svg.py`` draws
sparklines. ``card.py`` shows a row with its provenance. ``page.py`` [edge] renders Jinja2. The pages are in
``pages/``.

``static/live.js`` refreshes in place: it replaces only elements that changed, so focus, selection and open
parts stay.
"""

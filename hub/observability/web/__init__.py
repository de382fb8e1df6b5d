"""[core] The web app: values as people read them. Templates and static files are beside these modules.

``layout.py`` holds the navigation and the page frame. ``tree.py`` groups topics by labels. ``svg.py`` draws sparklines.
``card.py`` shows a row with its provenance. ``page.py`` [edge] renders Jinja2. The pages are in ``pages/``.
``static/live.js`` refreshes in place: only elements that changed are replaced, so focus, selection and open parts stay.
"""

"""The documentation as the server serves it below ``/help``, offline.

The pages are the Markdown files of ``docs/``. A wheel has a copy of that folder beside this module
(``pages/``); in a checkout the folder itself is read. mkdocs makes the site of the same files.

Facts:

- The order of the contents is: the index, tutorials, how-to guides, reference, explanation, runbooks,
  decisions. A page's title is its first heading.
- A link to another page keeps its anchor. A link to a file outside of ``docs/`` becomes text with the file's
  path in the repository, because neither a wheel nor the site has that file.
- Pages are trusted: they are part of the package. HTML in them is kept.

    pages.py         find, title and render pages
    mkdocs_hook.py   the same contents and links for mkdocs
"""

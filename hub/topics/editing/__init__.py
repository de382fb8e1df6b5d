"""One topic of topics.yaml, declared or changed from a page or over HTTP.

The file in git stays the truth: a change is an edit of its text, and then the plan and the apply of
``hub.topics.tree`` for this topic alone. The edit keeps comments and order, and changes no other topic. The
file is written first and whole; a plan of the same topic completes an apply that was interrupted.

- ``tree_text.py`` [core] edit one topic's settings in the text of topics.yaml.
- ``change.py`` [core] request, its settings, the plan as it is shown, digest.
- ``editor.py`` [shell] read the file and the cluster, plan, write the file, apply.
"""

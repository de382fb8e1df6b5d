"""The commands of ``hub connector``: connectors of Kafka Connect, declared, planned, operated.

commands.py  the group     planning.py  plan, apply, drift, validate, ls
control.py   pause, resume, restart, offsets, logs     plugins.py  plugins, add-plugin
context.py   the file, the client, options             truncated.py  deletions after a TRUNCATE
"""

"""The commands of ``hub connector``: connectors of Kafka Connect, declared, planned, operated.

commands.py  the group, plugins, add-plugin            planning.py  plan, apply, drift, validate, ls
control.py   pause, resume, restart, offsets, logs     truncated.py deletions after a TRUNCATE
context.py   the file, the client, options
"""

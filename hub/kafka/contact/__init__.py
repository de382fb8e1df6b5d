"""Contact with brokers: ``watchdog.py`` detects clients that a cluster no longer answers and has them
replaced (docs/adr/0030-cut-off-clients.md). ``notes.py`` shares each process's contact through files in the
home folder.
``connect_diagnosis.py`` explains why a broker refuses a connection, ``client_log.py`` limits the client's
own log lines.
"""

"""Values of the hub in Postgres' text and binary formats, by the numbers (OIDs) of its types.

types.py  [core] types, and those of the hub's kinds    encode.py [core] values of rows
decode.py [core] values of parameters
"""

"""Postgres' wire protocol, version 3.0, as pure functions: bytes to messages and back.

framing.py  [core] bytes to messages, within limits
frontend.py [core] messages of the client     backend.py [core] messages of the server
"""

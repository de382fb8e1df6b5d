"""Erasures in the server: ``open_erasures.py`` opens them, adds their routes, and carries out what is due."""

"""Facts that the pages read from other packages of the server: ``store_facts.py`` about views."""

"""[core] One file a schema format: parse, canonical text."""

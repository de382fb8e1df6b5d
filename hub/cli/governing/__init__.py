"""Commands of access requests and governance."""

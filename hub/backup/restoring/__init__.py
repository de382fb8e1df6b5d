"""One restore: time, plan, a backup as the engine's source, and verification. See the package above."""

"""The objects of a backup: manifest, sealing, files or S3, old runs. See the package above."""

"""One run of a backup: its plan, the reader of ranges, the writer of segments. See the package above."""

"""[core] Changelog records as rows: ``record.py`` reads key and version, ``row_decoder.py`` decodes one
record,
``row_batches.py`` decodes thousands of one schema at once with numpy.
"""

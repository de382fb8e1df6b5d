"""Mutations of the pure core: small, seeded changes that a unit test must notice. Start them with ``./run
mutate``.

core.py        which modules are mutated        mutants.py   source -> mutants, and the seeded sample
covering.py    which tests run for a module     planted.py   pytest plugin: imports a module's mutant in its place
mutate.py      runs the sample, prints the mutants that survived, writes ``.cache/mutations.json``
equivalent.py  mutants that change nothing, each with its reason
"""  # noqa: E501

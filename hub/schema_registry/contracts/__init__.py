"""The data rules of schemas ("data contracts"): executed as Confluent's serializers execute them, or refused.

A schema's rule set says what a value must be (CONDITION) and what it becomes (TRANSFORM) when it is written, read or migrated.
Confluent's registry only stores rule sets; its serializers execute them. Whatever writes values in the hub is a serializer, so it
executes them too: the gateway, ``hub topic publish``, repairs of dead-letter records. The auditor judges what others wrote.

Facts
  - ``rules.py`` [core] selects the rules of a mode and decides what follows from each result: go on, refuse, refuse with a copy.
  - ``executors.py`` [edge] holds a value in the form of its format and executes CEL, CEL_FIELD and JSONATA with Confluent's own
    executors (confluent-kafka, over cel-python and jsonata-python), so that results are the same.
  - A rule of any other type (ENCRYPT, ENCRYPT_PAYLOAD, unknown) is refused before anything is executed: fail closed.
  - Expressions come from whoever may register schemas. They run in a child process (``child.py``, [edge]) that the kernel ends
    when one value takes too much processor time or memory; ``runner.py`` [shell] starts it, asks it, and names the rule.

Flow
    Source with rule set ─▶ encoder_of ─▶ runner ─▶ child: JSON ─▶ native value ─▶ rules ─▶ bytes
"""

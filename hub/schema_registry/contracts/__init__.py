"""Data rules of schemas ("data contracts"): executed as Confluent's serializers execute them, or refused.

A schema's rule set requires properties of a value (CONDITION) or changes it (TRANSFORM) when it is
written, read or migrated. Confluent's registry only stores rule sets; its serializers execute them. Every
part of the hub that writes values is a serializer, so it executes them too: the gateway, ``hub topic
publish``, repairs of dead-letter records. The conformance check judges values of other writers.

Facts
  - ``rules.py`` [core] selects the rules of a mode and decides the outcome of each result: continue, refuse,
    refuse with a copy.
  - ``executors.py`` [edge] holds a value in its format's form and executes CEL, CEL_FIELD and JSONATA with
    Confluent's own executors (confluent-kafka, over cel-python and jsonata-python), for equal results.
  - ``encryption.py`` [edge] encrypts (ENCRYPT, ENCRYPT_PAYLOAD) with data keys that the child asks its parent
    for. A process without keys refuses such rules.
  - A rule of any other type is refused before anything is executed: fail closed.
  - Anyone who may register schemas writes expressions. They run in a child process (``child.py``, [edge])
    that the kernel ends when one value takes too much processor time or memory; ``runner.py`` [shell] starts
    the child, sends requests to it, and names the rule.

Flow
    Source with rule set ─▶ encoder_of ─▶ runner ─▶ child: JSON ─▶ native value ─▶ rules ─▶ bytes
"""

"""Field encryption compatible with Confluent's client-side field level encryption (CSFLE).

A rule of type ENCRYPT asks for the data key of its subject. The key ring finds it in the DEK registry, or
makes it, and the KMS unwraps it. Keys are in the memory of the server, of the rule process, and of the
workers of views with ``decrypt``, nowhere else.

A topic with ``erasable_by`` in topics.yaml has a data key for each person: destroying it erases the person's
fields in every copy of the log (docs/adr/0056-erasure.md).

``erasable.py`` [core] is the form of such fields. ``sealing.py`` [shell] encrypts them before a write.
``key_ring.py`` [shell] has the data keys of a process. ``opener.py`` [shell] decrypts stored values.
``remote_deks.py`` [edge] reads the DEK registry of a server. ``serving.py`` [shell] puts them together,
and unwraps keys for clients. ``kms.py`` [edge] wraps and unwraps data encryption keys
(DEKs) with keys of a key management service: those that ``kms`` in hub.yaml names, and no other. ``aws.py``
[edge] does it for AWS.
"""

"""[core] The registry as a state machine: ``decide`` answers a command with facts; ``apply`` alone changes
the state.

state_machine.py    decide and apply                   state.py      the state, and ``apply``
commands.py         commands and their results         errors.py     refusals, with Confluent's error codes
decide_register.py decide_delete.py decide_settings.py     the decisions, on preconditions.py
settings.py         settings and their values          rulebook.py   policies, as decisions use them
queries.py          reads of a subject or an id        across_contexts.py   reads over all of them
questions.py        compatibility and policies         snapshot.py   the state at one moment, as plain values
"""

"""The view workbench: a view is written and tried on recent events before its file exists.

A statement CREATE MATERIALIZED VIEW is drafted and checked by the functions that run it. Recent events of its
sources, as the caller sees them, become a case of a golden test. The runner of ``hub view test`` computes the
case, in a process of its own: Spark decides what a view's SQL means, and nothing else in the hub does. So the
rows that are shown are those that the view will have for these events, and the case can be kept as its test.

statement.py [core]  a first statement for a topic; where an error is in the text
sampled_case.py [core] sampled events as a case, and the case as a file of a golden test
samples.py   [shell] recent events of a topic          computer.py [edge]  the process with Spark
process.py   [shell] its start, its limits, its end   service.py  [shell] plan, preview, save
routes.py    [edge]  HTTP
"""

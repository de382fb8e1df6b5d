"""Sample systems whose events fill the log: a shop's seven systems (generated), and a year of real flights.

[core] customers.py  seeded events of seven systems, and the expected rows     flights.py  CSV files as events
[edge] feeder.py     append events to topics exactly once, across starts
"""

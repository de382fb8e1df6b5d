"""Sample systems whose events fill the log: a shop's seven systems (generated), and a year of real flights.

[core] customers.py  seeded events of seven systems, and the rows they must give     flights.py  CSV files as events
[edge] feeder.py     events into topics, once, however often it is started
"""

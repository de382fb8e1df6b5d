"""The section ``quotas`` of access.yaml and the account of a principal (hub/quotas has the rules).

nodes.py         [core]  the format, and the policy made of it
principals.py    [core]  the account of a principal, the same for every way to sign in
kafka_quotas.py  [core]  limits as client quotas of Kafka, compared with those of a cluster
"""

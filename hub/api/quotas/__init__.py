"""Quotas in the HTTP app: what the guard counts of each request.

route_quotas.py  [core]  the quota of each route
requests.py      [edge]  the spender of a request; admission; delayed refusals
"""

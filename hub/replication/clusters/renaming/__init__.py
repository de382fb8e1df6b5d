"""The cluster of renamed copies, with the topics' names at the mirror's source.

link_view.py         [edge] the clusters as one link sees them
renamed_cluster.py   [edge] Kafka's clients with other names of topics
"""

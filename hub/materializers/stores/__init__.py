"""[edge] Stores: where a view's rows can be read. Each takes changelog batches, rows and positions in one transaction."""

"""A key erased from every byte of a catalog and a checkpoint: search, purge, certificate."""

"""The erasure of a key from all bytes of a catalog and a checkpoint: search, purge, certificate."""

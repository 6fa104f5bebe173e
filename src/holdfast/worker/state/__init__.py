"""The state of keys: tables in memory, blobs in Spark's state store, working copies on a local disk."""

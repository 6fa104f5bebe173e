"""The state of keys: tables in memory, blobs in Spark's store, working copies on disk."""

"""Where state is kept: tables in memory, blobs in Spark's store, working copies on disk."""

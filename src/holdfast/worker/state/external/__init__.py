"""Blobs of keyed state that are kept outside Spark's store, in a database."""

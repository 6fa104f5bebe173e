"""The keyed engine in Spark's Python workers: the stored states, and the code that applies events to them."""

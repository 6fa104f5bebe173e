"""The keyed engine in Spark's Python workers: states, and the rules by which events change them."""

"""A walk through the verbs, on a small checkpoint of the coffee shop that Spark has written."""

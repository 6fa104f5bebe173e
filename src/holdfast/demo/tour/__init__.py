"""The tour: a sequence of commands on a small checkpoint of the coffee shop that Spark wrote."""

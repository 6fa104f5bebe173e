"""The plan that Spark makes of a query, as far as it tells what will hurt."""

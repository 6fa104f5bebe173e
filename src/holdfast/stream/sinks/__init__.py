"""The sinks of a query's rows, and the guarantee of each."""

"""The sinks for a query's rows, and the guarantee of each."""

"""Tables in a database, written from the driver and from executors."""

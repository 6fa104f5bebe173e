"""The run of a processor: events and rows, state objects, timers and TTLs."""

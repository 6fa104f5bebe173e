"""How a processor is run: events and rows, state objects, timers, times to live."""

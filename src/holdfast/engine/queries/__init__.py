"""Running queries: their events, stops, pauses and dry runs."""

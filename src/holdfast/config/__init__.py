"""Settings as values: typed, frozen, checked when they are made, each with an explanation."""

"""Settings as frozen, typed values that are checked on creation and explain themselves."""

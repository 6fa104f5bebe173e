"""Settings as frozen dataclasses that check their values on creation and explain each field."""

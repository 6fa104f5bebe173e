"""The declarations of a processor: states, types, handlers, and reading older state."""

"""What differs between two savepoints."""

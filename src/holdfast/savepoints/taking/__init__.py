"""Take a savepoint, once or again and again."""

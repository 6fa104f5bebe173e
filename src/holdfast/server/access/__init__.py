"""Who may ask, and for which directories."""

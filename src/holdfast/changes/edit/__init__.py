"""TODO edit."""

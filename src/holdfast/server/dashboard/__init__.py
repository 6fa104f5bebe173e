"""The dashboard: its pages, and the same views as JSON."""

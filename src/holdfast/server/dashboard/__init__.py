"""The dashboard: pages, and the same views as JSON."""

"""The dashboard: pages that people read and the same as JSON, made of one value each."""

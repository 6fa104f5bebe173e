"""The formats of a checkpoint's small text files: logs, metadata, schemas and notes."""

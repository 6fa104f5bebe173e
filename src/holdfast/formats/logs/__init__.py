"""The small text files of a checkpoint: logs, metadata, schemas, notes."""

"""Make state: migrated from another checkpoint, or out of a history and tables."""

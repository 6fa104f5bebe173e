"""Access control: callers, and the directories that their requests may name."""

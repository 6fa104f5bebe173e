"""Access control: the identity of callers, and the directories that requests may use."""

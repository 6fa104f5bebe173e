"""The numbers and alerts of queries, for whoever asks."""

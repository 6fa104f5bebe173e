"""The driver as a process: its start, its messages and its end."""

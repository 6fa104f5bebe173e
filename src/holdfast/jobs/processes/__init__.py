"""The driver as a process: how it starts, what it says, and when it ends."""

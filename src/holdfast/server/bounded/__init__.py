"""Work for a request in a process with bounds of time and memory."""

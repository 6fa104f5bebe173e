"""The server as a process next to a job, and its connections."""

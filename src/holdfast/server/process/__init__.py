"""The server as a process beside a job, and its connections."""

"""The registry: the jobs of a state home for other processes, and requests to supervisors."""

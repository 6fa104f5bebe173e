"""How long a job with a large state is away when its driver is killed."""

"""Several supervisors of one job: elections, leases, and what a leader leaves to the next."""

"""The right to write to a checkpoint: locks, which end with a process, and leases, which end with time.

On a local disk, a lock is enough: the kernel releases it when its process ends. Elsewhere the owner holds a
lease: it wins a term of an `Election`, and a `Lease` renews the term until it is released or lost. The token
of the term fences late writers, and a `LeaseWatchdog` ends the processes of an owner that did not renew its
term in time.
"""

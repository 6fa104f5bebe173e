"""What a state home remembers of its jobs, and what is asked of them."""

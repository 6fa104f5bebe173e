"""What a supervisor does beside its job, on threads of its own."""

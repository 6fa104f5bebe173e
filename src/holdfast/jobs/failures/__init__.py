"""What a failure says, and who has to fix it."""

"""What a failure says, and whose it is to mend."""

"""What is measured while jobs run, and who is told when it goes wrong."""

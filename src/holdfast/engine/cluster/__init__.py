"""Sessions whose tasks run on other machines: what they have there, and the code that gets there."""

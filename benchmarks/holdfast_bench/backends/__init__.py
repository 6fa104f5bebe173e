"""The places where state can be kept, against each other."""

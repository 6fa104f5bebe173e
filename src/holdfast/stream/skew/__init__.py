"""Find hot keys, and split them."""

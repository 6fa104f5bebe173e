"""What runs inside Spark's Python workers: states, and the rules by which keyed events change them."""

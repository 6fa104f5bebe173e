"""The key groups of Holdfast's keyed state, out of Spark's rows."""

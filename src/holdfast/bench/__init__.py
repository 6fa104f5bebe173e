"""The measurements: Holdfast against raw PySpark in the same run."""

"""The measurements: Holdfast against raw PySpark in the same run.

`holdfast bench` runs them. A checkout has them on its path by its editable install; a wheel has none.
"""

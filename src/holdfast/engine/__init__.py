"""The only package that uses py4j and Spark's internals."""

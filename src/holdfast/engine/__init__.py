"""The only room that knows py4j and Spark's internals."""

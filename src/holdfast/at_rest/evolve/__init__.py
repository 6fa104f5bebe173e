"""The state of Spark's own operators, brought into the form that new code of the query reads."""

"""One job on Spark, on Holdfast and on other engines: a running average per user with alerts."""

"""What people write pipelines with: operators and sinks, over Spark's own plan."""

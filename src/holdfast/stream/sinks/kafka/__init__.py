"""A topic of Kafka as a sink, and readers that drop what a batch wrote again."""

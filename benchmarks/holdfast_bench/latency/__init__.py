"""The time from an event in one Kafka topic to its result in another."""

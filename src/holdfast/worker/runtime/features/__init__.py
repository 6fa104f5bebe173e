"""What a processor can have besides keyed state: broadcast, instances, partial aggregates."""

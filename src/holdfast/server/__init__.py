"""The control plane over HTTP: Flink's resources, our own beside them, and who may ask."""

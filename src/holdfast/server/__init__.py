"""The control plane over HTTP: Flink's resources, Holdfast's own, and access control."""

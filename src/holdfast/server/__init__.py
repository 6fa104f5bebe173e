"""The control plane over HTTP: Flink's resources, Holdfast's own resources, and access control."""

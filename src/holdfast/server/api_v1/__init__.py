"""Holdfast's own REST resources, below `/api/v1`."""

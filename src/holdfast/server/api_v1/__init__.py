"""Holdfast's own REST resources, under `/api/v1`."""

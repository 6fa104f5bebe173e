"""A job to start with: the templates of its files, and their writer."""

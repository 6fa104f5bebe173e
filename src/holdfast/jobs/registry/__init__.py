"""The jobs of a state home as other processes see them, and requests to their supervisors."""

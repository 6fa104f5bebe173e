"""A directory of savepoints: what is in it, who may change it, what may go."""

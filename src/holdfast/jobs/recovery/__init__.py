"""A job on its way back after a failure: from where, when, and how long it takes."""

"""The coffee shop example: the streams of a day, the job, and the expected answers."""

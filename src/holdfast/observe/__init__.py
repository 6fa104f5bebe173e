"""The measurements of running jobs, and the delivery of alerts."""

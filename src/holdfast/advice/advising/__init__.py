"""What would be better than it is: advice on a checkpoint, a job, or a job that is still a plan."""

"""What is asked of jobs over REST and the dashboard, and what carries it out."""

"""What state says of itself: its past, its largest keys, its age."""

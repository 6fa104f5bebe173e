"""What a processor declares: its states and their types, its handlers, and how old state is read."""

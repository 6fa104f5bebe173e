"""Every rule, with what it looks for, why that hurts, and what to write instead."""

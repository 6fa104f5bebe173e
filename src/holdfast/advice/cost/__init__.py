"""What state costs: bytes, memory and requests, in money, and what each change would save."""

"""The same count and sum with a hot key and without one."""

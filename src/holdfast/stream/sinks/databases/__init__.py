"""The databases that a ledger and its tables may be in."""

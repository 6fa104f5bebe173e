"""The upgrade of a running job to new code: the plan, the durable record, the steps, and the way back."""

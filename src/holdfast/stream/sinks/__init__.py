"""Where a query's rows go, and what each sink promises."""

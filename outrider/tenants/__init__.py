"""Who asks: API keys, what each may ask for, and how much of it."""

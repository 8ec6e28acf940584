"""Identify tenants by API keys, and limit what each may request and how much of it."""

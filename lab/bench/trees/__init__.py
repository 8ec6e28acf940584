"""Dynamic trees against chains and fixed shapes of as many rows."""

"""Tool calls: what a request offers, how a model writes calls, and how they are answered."""

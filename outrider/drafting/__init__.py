"""The drafting side: what a draft model's logits say about the fate of a token, and when to stop."""

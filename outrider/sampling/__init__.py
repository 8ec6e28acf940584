"""From logits to the token that is chosen: truncation, rounding, noise, the draw."""

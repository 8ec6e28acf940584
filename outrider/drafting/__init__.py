"""Draft stopping on the device: what is known of a token before it is drawn, and when drafting ends."""

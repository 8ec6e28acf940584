"""From committed tokens to the text that may be shown."""

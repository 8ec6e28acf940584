"""Text of committed tokens: decoding, stop strings, and what may be shown."""

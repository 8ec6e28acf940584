"""The noise of a device beside that of numpy: equal to the last bit, and how long it takes."""

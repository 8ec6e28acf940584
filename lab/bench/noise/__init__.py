"""A device's noise against numpy's: equal to the last bit, and its speed."""

"""Very many clients at once, some of them slow or silent."""

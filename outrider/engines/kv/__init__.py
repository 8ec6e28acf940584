"""Ownership of KV memory in numbered blocks. Bookkeeping only, no tensors."""

"""KV memory in numbered blocks: who owns which. Bookkeeping only, no tensors."""

"""vLLM as the verifier's model: the torch engine's bookkeeping over vLLM's worker, one level below vLLM's scheduler.

vLLM is optional. Nothing outside this folder imports it, and of this folder only ``hooks``, ``forward``, ``worker`` and
``public`` do, when they are used.
"""

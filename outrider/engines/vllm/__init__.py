"""vLLM as the verifier's model: the same bookkeeping as torch's over vLLM's worker, one level below its scheduler.

vLLM is optional. Nothing outside this folder imports it, and of this folder only ``runner``, when an engine starts.
"""

"""vLLM as the verifier's model: its worker computes passes over our KV blocks, one level below its scheduler.

vLLM is optional. No module outside this package imports it; ``runner`` does when an engine starts.
"""

"""Greedy verification: a draft token is accepted iff it is the target's argmax.

The correction is the target's argmax at the first rejected position, so the output is token for token the target's own
greedy output (temperature 0, after bias and penalties; lowest id on ties). Source: speculative sampling at temperature
0 (Leviathan et al. 2023; WISP eq. 1).

The rule is ``chain.verify_chains`` for groups whose temperature is 0; they may share a batch with sampled ones.
"""

from outrider.verification.chain import ChainDecision, verify_chains

__all__ = ["ChainDecision", "verify_chains"]

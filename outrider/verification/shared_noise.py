"""Shared-noise verification: a draft token is accepted iff it is the token the target draws with the shared noise.

With ``g`` the Gumbel noise of (request seed, absolute position), the target's token is ``argmax(log p + g)``, which is
distributed exactly as ``p``. A drafter that takes ``argmax(log q + g)`` with the same ``g`` agrees with probability

    sum over x of 1 / sum over y of max(p(y) / p(x), q(y) / q(x))

which is at least ``(1 - TV(p, q)) / (1 + TV(p, q))`` and at most ``1 - TV(p, q)``, what ratio sampling accepts. Any
other drafter is as exact: the output is a function of target and seed, the drafter only changes how fast it comes.
No probability crosses the link, and windows, batches, retries and resumes cannot change a token.

Source: Daliri, Musco, Suresh 2024 (arXiv 2408.07978).

The rule is ``chain.verify_chains`` for groups that sample; they may share a batch with greedy ones.
"""

from outrider.verification.chain import ChainDecision, verify_chains

__all__ = ["ChainDecision", "verify_chains"]

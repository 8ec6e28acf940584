"""One part of a campaign: its requests alone, then in batches, and plain transformers on some of them."""

from collections.abc import Sequence

from lab.bench.exactness.company import Company
from lab.bench.exactness.counts import Counts
from lab.bench.exactness.reference import PlainModel, Target, plain_agreement, plain_applies, said_alone
from lab.bench.exactness.requests import Request


def tried(target: Target, requests: Sequence[Request], seed: int, plain: PlainModel | None = None) -> Counts:
    """Run all of it; ``plain`` is a separate model of the same dtype."""
    said = [said_alone(target.engine(target.max_context_tokens), request) for request in requests]
    counts = Company(target, seed).run(requests, said)
    counts += Counts(requests=len(requests), reference_tokens=sum(len(one.token_ids) for one in said))
    if plain is not None:
        for request, alone in zip(requests, said, strict=True):
            if plain_applies(request):
                agreed = plain_agreement(plain, request, alone, target.vocab_size)
                counts += Counts(
                    plain_tokens=len(agreed),
                    plain_agreed=sum(agreed),
                    plain_responses=1,
                    plain_responses_agreed=int(all(agreed)),
                )
    return counts

"""token_ids: only ids cross the link, as a chain or a tree.

Exact for greedy requests, and by shared noise for sampled ones (Daliri, Musco, Suresh 2024, arXiv 2408.07978): the
drafter draws with the same noise as the target.
"""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.drafting import Child, Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatRow, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, target_rule
from outrider.protocols.drawing import best
from outrider.protocols.protocol import DraftProtocol, DraftRow, DrawnRow, Layer, block
from outrider.sampling.distributions import softmax
from outrider.sampling.noise import noisy_scores
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape


class TokenIds(DraftProtocol):
    name = "token_ids"
    code = 0
    trees = grows = reproducible = draws_as_target = True

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        if draft.distribution is not None:
            found = type(draft.distribution).__name__
            raise MessageError(f"token_ids needs a block without distributions, found a {found}")
        write_shape(writer, draft, plan)
        writer.ids(draft.token_ids, wire.vocab_size)

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        nodes, parents = read_shape(reader, request.plan)
        return block(request, tuple(reader.ids(nodes, wire.vocab_size).tolist()), parents)

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return ``K * ceil(log2 |V|)``."""
        return plan.nodes * id_bits(wire.vocab_size)

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:  # noqa: ARG002 (one signature for all)
        return shape_bits(plan)

    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:
        return DrawnRow(best(row, layer.children))

    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        """Take the tokens that the target most likely draws there with the same noise."""
        scores = noisy_scores(np.stack([row.logits for row in rows]), layer.params.seed, layer.position)
        return [DrawnRow(best(row, layer.children)) for row in scores]

    def children(self, rows: Sequence[DraftRow], layer: Layer) -> list[list[Child]]:
        """Return children with their softmax of the scores that the target chooses by: logits, or noisy scores.

        That is the probability of the target's choice if its scores are the drafter's plus independent standard Gumbel
        errors.
        """
        scores = np.stack([row.logits for row in rows])
        if not layer.params.greedy:
            scores = noisy_scores(scores, layer.params.seed, layer.position)
        probs = softmax(scores)
        tokens = [best(row, layer.children) for row in scores]
        return [[(token, float(own[token])) for token in of_row] for of_row, own in zip(tokens, probs, strict=True)]

    def rule(self, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:  # noqa: ARG002 (one signature for all)
        """Return the rule that commits the target's own choice."""
        return target_rule(params)

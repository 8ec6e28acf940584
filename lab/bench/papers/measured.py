"""Acceptance of every scheme and truncation along the responses of a pair in this process."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import entropy
from tqdm import tqdm
from transformers import DynamicCache

from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.statistics import Estimate, estimate
from lab.bench.papers.coupling import SCHEMES, Scheme, by_falling, keep_top
from lab.bench.papers.rounds import RoundShape, recorded_shape
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel, load_drafter, load_target
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.distributions import softmax
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup
from outrider.training.traces import prompt_ids


@dataclass(frozen=True)
class Pair:
    target: LoadedModel
    drafter: LoadedModel


@dataclass(frozen=True, slots=True)
class Amount:
    """Extent of a measurement: number of responses, their maximum tokens, and the first seed."""

    prompts: int
    tokens: int
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PairRows:
    """One response and both models' rows along it, after the request's temperature and truncation."""

    token_ids: IntRow  # ``[n]`` int64, the response
    target_logits: FloatRow  # ``[n, vocab]`` float32; -inf for removed tokens
    draft_logits: FloatRow  # the same of the drafter


def load_pair(target: str, drafter: str) -> Pair:
    """Load both models in float32 on the CPU, by registry name or path; they run in one thread."""
    torch.set_num_threads(1)
    return Pair(
        load_target(target, dtype="float32", device="cpu"),
        load_drafter(drafter, target, dtype="float32", device="cpu"),
    )


def pair_rows(pair: Pair, params: SamplingParams, amount: Amount) -> Iterator[PairRows]:
    """Responses of the target to the benches' first prompts; prompt i is sampled with the seed ``amount.seed + i``.

    At each of their positions both models' logits are conditioned on the same tokens.
    """
    for number, prompt in enumerate(tqdm(PROMPTS[: amount.prompts], desc="responses", disable=None)):
        ids = prompt_ids(pair.target.tokenizer, prompt)
        yield _rows(pair, ids, replace(params, seed=amount.seed + number), amount.tokens)


@torch.inference_mode()
def _rows(pair: Pair, prompt: Sequence[int], params: SamplingParams, tokens: int) -> PairRows:
    vocab, start = pair.target.vocab_size, len(prompt)
    cache = DynamicCache(config=pair.target.model.config)
    pending, output, rows = list(prompt), list[int](), list[torch.Tensor]()
    while len(output) < tokens and not (output and output[-1] in pair.target.eos_token_ids):
        logits = pair.target.model(
            input_ids=torch.tensor([pending]), past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits[0, :, :vocab]
        group = RowGroup(params, start + len(output), None, (), 1)
        rows.append(adjust_logits(logits, [group]))
        pending = [int(choose_tokens(logits, [group])[0])]
        output += pending
    positions = torch.arange(start - 1, start + len(output) - 1)
    ids = torch.tensor([[*prompt, *output]])
    drafts = pair.drafter.model(input_ids=ids, logits_to_keep=positions, use_cache=False).logits[0, :, :vocab]
    group = RowGroup(params, start, None, tuple(output[:-1]), len(output))
    return PairRows(
        token_ids=np.array(output, dtype=np.int64),
        target_logits=torch.cat(rows).numpy(),
        draft_logits=adjust_logits(drafts, [group]).numpy(),
    )


Responses = tuple[npt.NDArray[np.float64], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One scheme along all responses: ``[n]`` values for each (see ``Coupled``)."""

    acceptance: Responses
    given_token: Responses

    @property
    def token_acceptance(self) -> Estimate:
        """Probability that a draft token is accepted, mean over positions."""
        return estimate(self.acceptance)

    @property
    def all_acceptances(self) -> npt.NDArray[np.float64]:
        """``[positions]``."""
        return np.concatenate(self.acceptance)

    def shape(self, window: int) -> RoundShape:
        return recorded_shape(self.given_token, window)


@dataclass(frozen=True, slots=True)
class Measured:
    series: Mapping[tuple[Scheme, int], Series]  # by scheme and number of draft tokens kept
    top_mass: Responses  # for each response ``[n, sizes]``, mass of the draft's most probable tokens
    entropy_bits: Responses  # of the draft distribution, for each response

    @property
    def positions(self) -> int:
        return sum(map(len, self.entropy_bits))


def measure(
    responses: Iterable[PairRows], kept: Mapping[Scheme, Sequence[int]], mass_sizes: Sequence[int] = ()
) -> Measured:
    """Reduce rows to figures, one response at a time.

    For each scheme ``kept`` has the numbers of draft tokens to keep (the vocabulary's size keeps all), ``mass_sizes``
    the numbers of tokens to add up for ``top_mass``.
    """
    wanted = [(scheme, count) for scheme, counts in kept.items() for count in counts]
    found: list[npt.NDArray[np.float64]] = []  # [n, wanted, 2] for each response
    top_mass, entropies = list[npt.NDArray[np.float64]](), list[npt.NDArray[np.float64]]()
    sizes = np.asarray(mass_sizes, dtype=np.int64)
    for rows in responses:
        targets, drafts = softmax(rows.target_logits), softmax(rows.draft_logits)
        coupled, masses = [], []
        for target, draft, token in zip(targets, drafts, rows.token_ids.tolist(), strict=True):
            order = by_falling(draft)
            cut = {count: keep_top(draft, order, count) for count in {count for _, count in wanted}}
            coupled.append([astuple(SCHEMES[scheme](target, cut[count], token)) for scheme, count in wanted])
            masses.append(np.cumsum(draft[order])[sizes - 1])  # TSLT section 5.1
        found.append(np.array(coupled))
        top_mass.append(np.array(masses))
        entropies.append(np.asarray(entropy(drafts, base=2, axis=1)))
    return Measured(
        series={
            key: Series(tuple(one[:, i, 0] for one in found), tuple(one[:, i, 1] for one in found))
            for i, key in enumerate(wanted)
        },
        top_mass=tuple(top_mass),
        entropy_bits=tuple(entropies),
    )

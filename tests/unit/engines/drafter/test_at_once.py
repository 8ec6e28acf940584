"""A drafter whose logits are on a device of its own: the same drafts, and one look at that device for a pass."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from outrider.contracts.drafting import Draft, DraftAnswer, DraftTerms
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.drafting.acceptance import ConfidenceLogistic
from outrider.drafting.stops import NeverStop, StopBefore, StopRule
from outrider.engines.drafter import engine as drafter_engine
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.torch.model import DraftModel
from outrider.sampling.device_tensors import everywhere_at_once
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, PENALISED, PROMPT, SAMPLED, Device
from tests.unit.engines.watching import watched

TERMS = DraftTerms(WireFormat(VOCAB, FloatField.BF16, top_k=20))
BIASED = SamplingParams(temperature=0.7, seed=8, top_p=0.9, logit_bias=((3, 2.0), (9, -1.0)))
RULES: Mapping[str, StopRule] = {"all the way": NeverStop(), "stops": StopBefore(ConfidenceLogistic(0.8, 0.1), 0.4)}


@dataclass(frozen=True)
class Kind:
    params: SamplingParams
    protocol: ProtocolName = "token_ids"
    window: int = 4
    expansion: tuple[int, ...] = ()
    rows: int = 0
    want_hidden: bool = False


KINDS = {
    "greedy": Kind(GREEDY),
    "sampled": Kind(SAMPLED, window=6),
    "penalised": Kind(PENALISED),
    "biased": Kind(BIASED, window=3),
    "hidden": Kind(GREEDY, window=3, want_hidden=True),
    "dsd": Kind(SAMPLED, "dsd"),
    "tslt": Kind(SAMPLED, "tslt"),
    "dssd": Kind(PENALISED, "dssd"),
    "tree": Kind(SAMPLED, "tslt", expansion=(2, 2)),
    "grown": Kind(SAMPLED, "token_ids", expansion=(2, 2), rows=4),
}


@dataclass
class Drafted:
    answers: dict[str, DraftAnswer] = field(default_factory=dict)
    reads: list[int] = field(default_factory=list)  # of each step
    waits: list[str] = field(default_factory=list)


def drafted(
    names: list[str], rule: StopRule, monkeypatch: pytest.MonkeyPatch, *, beside: bool, sent_chain: bool
) -> Drafted:
    """Two blocks of each kind by one engine, whose prompts come in chunks."""
    verdicts: list[object] = []
    on_verdict = (lambda *verdict: verdicts.append(verdict)) if sent_chain else None
    engine: TorchDrafter = torch_drafter(tiny_llama(), rule=rule, on_verdict=on_verdict)
    devices = {name: Device(name, KINDS[name].params, (len(name), *PROMPT), KINDS[name].protocol) for name in names}
    found = Drafted()
    for device in devices.values():
        engine.open(device.opening(), TERMS)
    for number in range(2):
        for name, device in devices.items():
            kind = KINDS[name]
            engine.submit(device.request(kind.window, kind.expansion, want_hidden=kind.want_hidden, rows=kind.rows))
        while engine.busy:
            with everywhere_at_once() if beside else nullcontext(), watched(monkeypatch) as watch:
                answers = engine.step()
            found.reads.append(watch.reads)
            found.waits += watch.waits
            found.answers |= {f"{answer.generation} {number}": answer for answer in answers}
        for name, device in devices.items():
            draft = found.answers[f"{name} {number}"]
            assert isinstance(draft, Draft)
            device.tokens += [*draft.token_ids[:1], 7]
    return found


@pytest.mark.parametrize("sent_chain", [False, True], ids=["", "told"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("names", [*([name] for name in KINDS), [*KINDS]], ids=", ".join)
def test_a_pass_reads_the_device_once_and_drafts_the_same(
    names: list[str], rule: StopRule, monkeypatch: pytest.MonkeyPatch, *, sent_chain: bool
) -> None:
    monkeypatch.setattr(drafter_engine, "draft_model", DraftModel)  # a processor has loops of its own
    expected = drafted(names, rule, monkeypatch, beside=False, sent_chain=sent_chain)
    found = drafted(names, rule, monkeypatch, beside=True, sent_chain=sent_chain)
    assert found.waits == []
    assert max(found.reads) == 1
    assert {name: repr(answer) for name, answer in found.answers.items()} == {
        name: repr(answer) for name, answer in expected.answers.items()
    }

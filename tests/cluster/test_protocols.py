"""Every protocol through HTTP: exact where it is greedy, truly scored where it samples, and over a far link."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import ray
import torch
from prometheus_client.parser import text_string_to_metric_families
from ray import serve

from actors.messages import DrafterId
from bench.harness.prompts import chat_ids
from cluster.local import APP_NAME
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import ProtocolName
from outrider.link.profiles import LinkProfile
from outrider.models.loading import LoadedModel
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.timing import RoundTiming
from outrider.text.tokens import TokenTable
from serve_app.metrics import LINK_RTT_S, PAYLOAD_BITS
from tests.cluster.conftest import DRAFTERS, Service
from tests.cluster.prompts import CHATS
from tests.cluster.reference import greedy, shown
from tests.cluster.served import MODEL, eventually
from tests.cluster.streams import streams

TOKENS = 24
FAR = LinkProfile(up_bps=100e6, down_bps=100e6, rtt_s=0.08)
_WITHIN_S = 120.0
_EXPORTED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Asked:
    """A plan as a request names it."""

    protocol: ProtocolName
    window: int
    expansion: tuple[int, ...] = ()

    @property
    def options(self) -> dict[str, object]:
        """As the request's ``outrider``."""
        return {"protocol": self.protocol, "window": self.window, "expansion": list(self.expansion)}


CHAINS = tuple(Asked(name, 4) for name in PROTOCOLS if name != "tslt_tree")
PLANS = (*CHAINS, Asked("token_ids", 3, (2, 2, 1)), Asked("tslt_tree", 3, (3, 2, 1)))


def complete(service: Service, prompt: list[int], asked: Asked, **extra: object) -> Any:
    """One completion."""
    request = {"model": MODEL, "prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, **extra}
    return service.post("/v1/completions", {**request, "outrider": asked.options})


def under_each(service: Service, prompt: list[int], plans: tuple[Asked, ...], **extra: object) -> dict[Asked, Any]:
    """A completion under each plan, all at once."""
    with ThreadPoolExecutor(len(plans)) as pool:
        return dict(zip(plans, pool.map(lambda asked: complete(service, prompt, asked, **extra), plans), strict=True))


@pytest.fixture(scope="module")
def prompt(target: LoadedModel) -> list[int]:
    return chat_ids(target.tokenizer, CHATS[0])


@pytest.fixture(scope="module")
def expected(target: LoadedModel, prompt: list[int]) -> str:
    """What the target alone answers."""
    return shown(target, greedy(target, prompt, TOKENS))


def test_greedy_output_is_the_targets_own_under_every_protocol(
    service: Service, prompt: list[int], expected: str
) -> None:
    for asked, answer in under_each(service, prompt, PLANS, temperature=0).items():
        assert answer["choices"][0]["text"] == expected, asked
        assert answer["usage"]["completion_tokens"] == TOKENS
        assert_made_by(asked, answer["usage"]["outrider"])


def assert_made_by(asked: Asked, usage: dict[str, Any]) -> None:
    """The protocol that was asked for took part, and no other; it was paid for, and nothing was given up."""
    assert set(usage["protocols"]) - {"none"} == {asked.protocol}
    assert sum(usage["protocols"].values()) == usage["rounds"]
    assert usage["accepted_tokens"] > 0, asked
    assert min(usage["payload_bits"].values()) > 0
    assert usage["lossless"] is True


def test_sampled_tokens_are_scored_by_the_target_under_every_protocol(
    service: Service, target: LoadedModel, prompt: list[int]
) -> None:
    """Whoever drew them: the device (a correction), the drafter or the target. Stop strings end them all the same."""
    table = TokenTable(target.tokenizer.backend_tokenizer)
    ids = {table.name(i): i for i in range(target.vocab_size)}
    wire = service.config.wire.format(target.vocab_size)
    answers = under_each(service, prompt, PLANS, temperature=1, logprobs=1, stop=["the"])
    reasons = set()
    for asked, answer in answers.items():
        choice, usage = answer["choices"][0], answer["usage"]["outrider"]
        reasons.add(choice["finish_reason"])
        assert "the" not in choice["text"]
        assert choice["finish_reason"] == "stop" or answer["usage"]["completion_tokens"] == TOKENS
        tokens = [ids[name] for name in choice["logprobs"]["tokens"]]
        scores = raw_logprobs(target, prompt, tokens)
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(scores, abs=1e-3), asked
        assert usage["lossless"] is True
        if asked in CHAINS:
            one = PROTOCOLS[asked.protocol].expected_bits(wire, DraftPlan(asked.protocol, 1))
            assert usage["payload_bits"]["up"] >= usage["drafted_tokens"] * one > 0, (
                "never less than the papers' formula"
            )
    assert "stop" in reasons
    up = {asked: answer["usage"]["outrider"]["payload_bits"]["up"] for asked, answer in answers.items()}
    assert max(up, key=up.__getitem__).protocol == "dsd", "whole distributions cost most"


@torch.inference_mode()
def raw_logprobs(target: LoadedModel, prompt: list[int], tokens: list[int]) -> list[float]:
    """The target's raw log-probability of each token behind the prompt."""
    logits = target.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    rows = logits[:, : target.vocab_size].log_softmax(-1)
    return [float(row[token]) for row, token in zip(rows, tokens, strict=True)]


def drafter(service: Service, index: int) -> Any:
    """A drafter actor's handle."""
    name = DrafterId(service.config.drafters[0].name, index).actor_name
    return ray.get_actor(name, namespace=service.config.cluster.namespace)


@pytest.fixture
def far(service: Service) -> Iterator[LinkProfile]:
    """A slow link to every drafter."""
    drafters = [drafter(service, index) for index in range(DRAFTERS)]
    ray.get([actor.emulate_link.remote(FAR) for actor in drafters], timeout=60)
    yield FAR
    ray.get([actor.emulate_link.remote(None) for actor in drafters], timeout=60)


def timings() -> list[RoundTiming]:
    """The coordinator's rounds since it was asked last."""
    handle: Any = serve.get_deployment_handle("Coordinator", APP_NAME)
    told: list[RoundTiming] = handle.recent_timings.remote().result(timeout_s=60)
    return told


def exported(name: str, **labels: str) -> float:
    """The sum over a metric's series with these labels, as Ray exports it for Prometheus; 0 without any."""
    nodes: Any = ray.nodes
    total = 0.0
    for node in nodes():
        text = httpx.get(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics", timeout=60).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        total += sum(s.value for s in samples if s.name == f"ray_{name}" and labels.items() <= s.labels.items())
    return total


def test_over_a_far_link_the_output_is_the_same_and_the_link_is_measured(
    service: Service, prompt: list[int], expected: str, far: LinkProfile
) -> None:
    timings()  # of whatever was before
    plans = (Asked("token_ids", 1), Asked("dssd", 1), Asked("tslt", 1))
    answers = under_each(service, prompt, plans, temperature=0)
    assert {answer["choices"][0]["text"] for answer in answers.values()} == {expected}
    drafted = [timing for timing in timings() if timing.protocol is not None]
    assert {timing.protocol for timing in drafted} == {asked.protocol for asked in plans}
    assert min(timing.link_s for timing in drafted) >= far.rtt_s * 0.99, "there and back, short of the clock's grain"
    for asked in plans:
        sent = sum(timing.up_bits for timing in drafted if timing.protocol == asked.protocol)
        assert 0 < sent <= answers[asked]["usage"]["outrider"]["payload_bits"]["up"]
        labels = {"protocol": asked.protocol, "direction": "up"}
        eventually(lambda b=sent, of=labels: exported(PAYLOAD_BITS.name, **of) >= b, _EXPORTED_WITHIN_S)  # type: ignore[misc]
    eventually(lambda: exported(LINK_RTT_S.name) >= far.rtt_s * 0.9, _EXPORTED_WITHIN_S)


def test_a_drafter_is_killed_while_it_owes_corrections(service: Service) -> None:
    """Another one of its model draws them, from the target's row asked for anew: nothing is lost of the law."""
    options = {"outrider": {"protocol": "dssd", "window": 4}, "temperature": 1.0, "seed": None}

    def state() -> str:
        status: Any = service.get("/status")
        return str(status["drafters"][0]["state"])

    def kill() -> None:
        ray.kill(drafter(service, 0), no_restart=False)
        eventually(lambda: state() != "ready", _WITHIN_S)

    eventually(lambda: state() == "ready", _WITHIN_S)
    told = [response.usage["outrider"] for response in streams(service.url, kill, tokens=32, options=options)]
    assert all(usage["lossless"] is True for usage in told)
    assert set().union(*(usage["protocols"] for usage in told)) <= {"none", "dssd"}
    assert sum(usage["accepted_tokens"] for usage in told) > 0
    eventually(lambda: state() == "ready", _WITHIN_S)

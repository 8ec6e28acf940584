"""An engine that is lost: another one goes on from the committed tokens alone, exactly, in the same process too."""

import random
from collections.abc import Callable

from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import Unfinished, Unknown, Verified
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.reference import Client, alone, generate, mixed_draft, verify_until_done

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PENALISED = SamplingParams(seed=6, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4)


def test_a_fresh_engine_goes_on_from_the_committed_tokens(make_exact_verifier: MakeVerifier) -> None:
    """In the middle of a prompt, between rounds, and of a round whose outcome was lost; the last time vLLM restarts."""
    rng = random.Random(4)
    clients = [
        Client(f"c{i}", [rng.randrange(VOCAB) for _ in range(5 + 20 * i)], params)
        for i, params in enumerate([GREEDY, SAMPLED, PENALISED])
    ]
    cold = Client("cold", [rng.randrange(VOCAB) for _ in range(120)], SAMPLED)
    truths = {c.name: alone(make_exact_verifier, c.prompt, c.params, 50) for c in [*clients, cold]}

    def draft(client: Client) -> list[int]:
        return mixed_draft(truths[client.name][len(client.output) :], 4, rng)

    starts: list[Callable[[], None]] = [lambda: None, lambda: None, make_exact_verifier.stop]
    for number, before in enumerate(starts):
        before()
        engine = make_exact_verifier(tiny_llama())
        assert engine.verify([clients[0].block()]) == [Unknown("c0", clients[0].round)]
        generate(engine, clients, draft, 10 * (number + 1))
        engine.open(cold.opening())
        assert isinstance(engine.verify([cold.block()])[0], Unfinished)
        assert isinstance(verify_until_done(engine, [clients[1].block(draft(clients[1]))])[0], Verified)
    generate(engine, [*clients, cold], draft, 40)
    for client in [*clients, cold]:
        assert client.output == truths[client.name][: len(client.output)]


def test_what_a_stopped_engine_shared_is_cold_in_the_next(make_exact_verifier: MakeVerifier) -> None:
    """No KV is believed to be there that another engine has written."""
    prompt = [(7 * i) % VOCAB for i in range(3 * make_exact_verifier.block_tokens)]
    for params in (GREEDY, SAMPLED):
        engine, client = make_exact_verifier(tiny_llama()), Client("a", prompt, params)
        generate(engine, [client], lambda _: [], 2)
        engine.close("a", keep_cache=True)
        assert client.outcomes[0].cached_tokens == 0
        assert client.output == alone(make_exact_verifier, prompt, params, 2)

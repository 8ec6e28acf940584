"""EleutherAI's lm-eval: choices and texts scored by ``echo`` and ``logprobs`` of ``/v1/completions``, and generations.

The tasks are in ``lab/bench/clients/tasks``; nothing is downloaded.
"""

import json
import os
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import lm_eval
from lm_eval.tasks import TaskManager

from lab.bench.clients.asking.checking import Asked, expect, main

_TASKS = Path(__file__).parents[1] / "tasks"
_CHANCE = 0.25  # of guessing a capital
_NEAR = 1e-3  # tolerance of log-probabilities of one choice, requested in two ways


def _evaluated(asked: Asked, task: str, name: str, *, chat: bool = False, **model_args: Any) -> tuple[Any, Any]:
    """A task's metrics, and its samples, which are kept under ``name``."""
    os.environ["OPENAI_API_KEY"] = asked.key or "none"
    path = "/chat/completions" if chat else "/completions"
    given: dict[str, Any] = {"model": asked.model, "base_url": asked.url + path, "max_retries": 1, "max_length": 1024}
    if not chat:
        given |= {"tokenizer": asked.tokenizer, "tokenizer_backend": "huggingface"}
    found = lm_eval.simple_evaluate(
        model="local-chat-completions" if chat else "local-completions",
        model_args=given | model_args,
        tasks=[task],
        task_manager=TaskManager(include_path=str(_TASKS), include_defaults=False),
        apply_chat_template=chat,
        bootstrap_iters=0,
    )
    metrics, samples = found["results"][task], found["samples"][task]
    kept = {"metrics": metrics, "samples": samples}
    (asked.reports / f"{name}.json").write_text(json.dumps(kept, indent=1, default=str), encoding="utf-8")
    return metrics, samples


def _choices(asked: Asked) -> str:
    found = _evaluated(asked, "outrider_capitals", "capitals")[0]["acc,none"]
    expect(found > _CHANCE, "more right than by chance", found)
    return f"accuracy {found:.3f}"


def _ways(asked: Asked) -> str:
    """Score the same choices as texts, with several prompts in a request, and with several requests at once."""
    expected = _scores(asked, "by_ids")
    ways: dict[str, Any] = {
        "texts": {"tokenized_requests": False},
        "prompts": {"batch_size": 4},
        "requests": {"num_concurrent": 4},
    }
    apart = 0.0
    for name, way in ways.items():
        found = _scores(asked, f"by_{name}", **way)
        apart = max(apart, *(abs(a - b) for a, b in zip(expected, found, strict=True)))
        expect(apart < _NEAR, f"the same log-probabilities by {name} as by token ids", apart)
    return f"{len(expected)} log-probabilities, at most {apart:.1g} apart"


def _scores(asked: Asked, name: str, **way: Any) -> list[float]:
    _, samples = _evaluated(asked, "outrider_capitals", name, **way)
    return [float(score) for one in samples for score, _ in one["filtered_resps"]]


def _texts(asked: Asked) -> str:
    found = _evaluated(asked, "outrider_texts", "texts")[0]["bits_per_byte,none"]
    expect(0 < found < 8, "fewer bits than bytes have", found)
    return f"{found:.3f} bits per byte"


def _copies(asked: Asked) -> str:
    found = _evaluated(asked, "outrider_copies", "copies")[0]["exact_match,stripped"]
    expect(found > 0, "a word copied", found)
    return f"{found:.2f} copied"


def _chats(asked: Asked) -> str:
    metrics, samples = _evaluated(asked, "outrider_copies", "chats", chat=True)
    expect(all(one["resps"][0][0] for one in samples), "a text for each", samples)
    return f"{metrics['exact_match,stripped']:.2f} copied"


CHECKS = (
    ("local-completions, multiple_choice", _choices),
    ("the same by texts, by several prompts, at once", _ways),
    ("local-completions, loglikelihood_rolling", _texts),
    ("local-completions, generate_until", _copies),
    ("local-chat-completions, generate_until", _chats),
)

if __name__ == "__main__":
    main("lm-eval", CHECKS)

"""Refuses flags that ``outrider serve`` does not have, with what holds here in place of each. Imports nothing heavy."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from outrider.contracts.errors import OutriderError


class UnknownFlagError(OutriderError):
    """A flag of another server, or of none. Its value, which may be a secret, is not told."""


_TEMPLATE = "the chat template is the model's own: chat_template.jinja or tokenizer_config.json in its folder"
_REASONING = "name the token that ends the model's reasoning by --set structured.reasoning_end=TOKEN"
_DRAFTING = "give a drafter by --drafter, draft tokens of a round by --set speculation.window=N"
_COPIES = "copies of the model are verifiers: --set verifiers.count=N"
_LORA = "adapters are not served: merge one into its model's weights"
_TLS = "TLS ends at a proxy before the service (docs/how-to/deploy.md)"
_QUIET = "texts of requests and responses are never logged"
_TEXT = "the service generates from text; images, audio and embeddings are not served"

INSTEAD: Mapping[str, str] = {
    "--trust-remote-code": "no code of a model's folder is run: its architecture must be one of transformers' own",
    "--tokenizer": "the tokenizer is the model's own",
    "--tokenizer-mode": "the tokenizer is the model's own",
    "--skip-tokenizer-init": "the tokenizer is always needed",
    "--revision": "give MODEL as a folder that holds the revision",
    "--download-dir": "models are kept in $HF_HOME",
    "--load-format": "weights are read from safetensors",
    "--hf-token": "hub access is read from $HF_TOKEN",
    "--chat-template": _TEMPLATE,
    "--chat-template-content-format": _TEMPLATE,
    "--default-chat-template-kwargs": "a request gives chat_template_kwargs itself",
    "--reasoning-parser": _REASONING,
    "--enable-reasoning": _REASONING,
    "--tool-parser-plugin": "formats of tool calls are built in: --tool-call-parser",
    "--speculative-config": _DRAFTING,
    "-sc": _DRAFTING,
    "--speculative-model": _DRAFTING,
    "--num-speculative-tokens": _DRAFTING,
    "--spec-method": _DRAFTING,
    "--spec-model": _DRAFTING,
    "--spec-tokens": _DRAFTING,
    "--swap-space": "host memory for KV is --set verifiers.swap_mib=N, in MiB",
    "--kv-cache-memory-bytes": "memory for KV is --set verifiers.kv_budget_mib=N, in MiB",
    "--kv-offloading-size": "host memory for KV is --set verifiers.swap_mib=N, in MiB",
    "--max-num-batched-tokens": "positions of one prompt in a pass are --set verifiers.prefill_chunk_tokens=N",
    "--no-enable-prefix-caching": "prefixes are always cached; a request's cache_salt keeps its own apart",
    "--no-enable-chunked-prefill": "long prompts are always computed in chunks",
    "--no-enable-auto-tool-choice": "tools are offered by requests; --tool-call-parser none refuses them",
    "--pipeline-parallel-size": _COPIES,
    "-pp": _COPIES,
    "--data-parallel-size": _COPIES,
    "-dp": _COPIES,
    "--device-ids": "GPUs are given by Ray: --set verifiers.num_gpus=N, and $CUDA_VISIBLE_DEVICES of the service",
    "--distributed-executor-backend": "processes are Ray's",
    "--seed": "a request gives its own seed",
    "--task": _TEXT,
    "--runner": _TEXT,
    "--convert": _TEXT,
    "--limit-mm-per-prompt": _TEXT,
    "--enable-lora": _LORA,
    "--lora-modules": _LORA,
    "--ssl-keyfile": _TLS,
    "--ssl-certfile": _TLS,
    "--ssl-ca-certs": _TLS,
    "--root-path": "a proxy before the service removes its own prefix",
    "--uds": "the service listens on --host and --port",
    "--enable-log-requests": _QUIET,
    "--enable-log-outputs": _QUIET,
    "--disable-log-stats": "figures are at /metrics and are not logged; leave the flag out",
    "--otlp-traces-endpoint": "traces are sent by --set tracing.enabled=true --set tracing.endpoint=URL",
    "--scheduling-policy": "a request's class and priority order it: --set scheduling.policy=NAME",
}


def refuse_unknown(arguments: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the first of the arguments that no parser took."""
    flags = [each.partition("=")[0] for each in arguments if each.startswith("-")]
    if not flags:
        raise UnknownFlagError(f"needs one MODEL, found {len(arguments)} arguments more")
    flag = next((each for each in flags if _dashed(each) in INSTEAD), flags[0])
    dashed = _dashed(flag)
    if dashed in INSTEAD:
        raise UnknownFlagError(f"{flag} is no flag of outrider serve: {INSTEAD[dashed]}")
    near = get_close_matches(dashed, known, n=1, cutoff=0.8)
    likely = f"did you mean {near[0]}? " if near else ""
    option = dashed.strip("-").replace("-", "_")
    raise UnknownFlagError(
        f"{flag} is no flag of outrider serve; {likely}Settings (outrider config show lists them) are given by --set "
        f"KEY=VALUE, options of vLLM's engine by --engine vllm --set verifiers.vllm_options.{option}=VALUE"
    )


def _dashed(flag: str) -> str:
    """Return a flag with dashes for underscores: vLLM takes both."""
    return flag if not flag.startswith("--") else f"--{flag[2:].replace('_', '-')}"

"""Flags of ``outrider serve`` that name settings, as vLLM has them, or ask for what holds. Imports nothing heavy."""

import argparse
import json
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple


class SettingFlag(NamedTuple):
    """A setting's path, and the flag's help; ``is_text``: the value is text as it stands, not YAML."""

    path: str
    metavar: str
    help: str
    is_text: bool = True


_MODEL: Mapping[str, SettingFlag] = {
    "--drafter": SettingFlag("drafters.0.model", "PATH", "file of `outrider distill`, folder or hub name"),
    "--served-model-name": SettingFlag("model.served_name", "NAME", 'what clients send as "model"'),
    "--dtype": SettingFlag("model.dtype", "TYPE", "auto, float32, bfloat16 or float16"),
    "--max-model-len": SettingFlag("model.max_context_tokens", "TOKENS", "prompt and response together", is_text=False),
    "--generation-config": SettingFlag("model.generation_config", "NAME", "auto, vllm or a folder: sampling defaults"),
    "--override-generation-config": SettingFlag(
        "model.override_generation_config", "JSON", 'single sampling defaults, as {"temperature": 0.7}', is_text=False
    ),
    "--tool-call-parser": SettingFlag(
        "structured.tool_format", "NAME", "a form of tool calls such as hermes; none, or auto"
    ),
}
_ENGINE: Mapping[str, SettingFlag] = {
    "--engine": SettingFlag("verifiers.engine", "NAME", "torch or vllm"),
    "--device": SettingFlag("verifiers.device", "NAME", "cpu or cuda; cuda needs a share verifiers.num_gpus as well"),
    "--tensor-parallel-size": SettingFlag(
        "verifiers.tensor_parallel_size", "GPUS", "that share one copy of the model; with vllm", is_text=False
    ),
    "--gpu-memory-utilization": SettingFlag(
        "verifiers.vllm_options.gpu_memory_utilization",
        "SHARE",
        "of a GPU's memory; with torch it is verifiers.num_gpus",
        is_text=False,
    ),
    "--quantization": SettingFlag("verifiers.vllm_options.quantization", "NAME", "of the weights; with vllm"),
    "--max-num-seqs": SettingFlag(
        "limits.max_concurrent_generations", "RESPONSES", "at a time; more of them wait", is_text=False
    ),
}
_HTTP: Mapping[str, SettingFlag] = {
    "--host": SettingFlag("http.host", "ADDRESS", "to listen on; 0.0.0.0: all interfaces"),
    "--port": SettingFlag("http.port", "PORT", "to listen on", is_text=False),
    "--allowed-origins": SettingFlag(
        "http.cors_origins", "JSON", 'of web pages that may ask, as ["https://my.page"]', is_text=False
    ),
}
_SHORT: Mapping[str, str] = {"--tensor-parallel-size": "-tp", "--quantization": "-q"}
_HOLDING: Mapping[str, str] = {
    "--enable-prefix-caching": "prefixes are cached",
    "--enable-chunked-prefill": "long prompts are computed in chunks",
    "--enable-auto-tool-choice": "the model chooses among a request's tools",
    "--enable-prompt-tokens-details": "usage tells cached tokens",
    "--enable-request-id-headers": "answers have X-Request-Id",
    "--enable-server-load-tracking": "/load tells responses under way",
    "--disable-log-requests": "texts of requests are not logged",
    "--no-enable-log-requests": "texts of requests are not logged",
}


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    served = "to serve: embedded, a folder in Hugging Face format, or a hub name (model.target)"
    model.add_argument("model", metavar="MODEL", nargs="?", help=served)
    _add(model, _MODEL)
    _add(parser.add_argument_group("engine"), _ENGINE)


def add_http_flags(parser: argparse.ArgumentParser) -> None:
    http = parser.add_argument_group("HTTP")
    _add(http, _HTTP)
    asked = "that clients must send (default: $OUTRIDER_API_KEY, else $VLLM_API_KEY); for several: auth.keys_file"
    http.add_argument("--api-key", metavar="KEY", help=asked)


def add_holding_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags of vLLM that ask for what is so anyway."""
    holding = parser.add_argument_group("taken from vLLM's users", "Each asks for what holds without it.")
    for name, held in _HOLDING.items():
        holding.add_argument(name, action="store_true", dest="holding", help=held)


def with_model(model: str | None, assignments: list[object]) -> list[object]:
    """Return the arguments with ``MODEL``, if it is given, before the others."""
    return assignments if model is None else [("MODEL", "model.target", _quoted(model)), *assignments]


def _add(group: "argparse._ArgumentGroup", flags: Mapping[str, SettingFlag]) -> None:
    for name, flag in flags.items():
        group.add_argument(
            name,
            *([_SHORT[name]] if name in _SHORT else []),
            dest="assignments",
            action="append",
            metavar=flag.metavar,
            type=partial(_assignment, name, flag),
            default=[],
            help=f"{flag.help} ({flag.path})",
        )


def _assignment(name: str, flag: SettingFlag, value: str) -> tuple[str, str, str]:
    """Return the fields of an ``Assignment``."""
    return name, flag.path, _quoted(value) if flag.is_text else value


def _quoted(text: str) -> str:
    """Return text as YAML that reads as this text, whatever is in it."""
    return json.dumps(text, ensure_ascii=False)

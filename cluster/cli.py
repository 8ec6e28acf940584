"""The command line. Commands import what they need when they run, so that ``outrider --help`` answers at once.

A mistake of the user's prints ``outrider: error: ...`` and exits with status 2; an interrupt exits silently with 130.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from outrider import __version__
from outrider.contracts.errors import OutriderError, ParameterError

if TYPE_CHECKING:
    from outrider.config.schema import Config

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 (argparse gives it no public name)

_USER_ERROR = 2
_INTERRUPTED = 130
_BENCHES = (
    "capacity",
    "engine",
    "engines",
    "interference",
    "load",
    "overhead",
    "paper",
    "protocols",
    "scheduling",
    "wire-bits",
)
_TOOLS = {  # commands that read their arguments themselves
    "profile": "measure what verification takes on this machine, for the scheduler to predict it",
    "simulate": "run scenarios on a virtual clock: a YAML file, or the papers' capacity tables",
    "plan": "say what a deployment will do before it is bought: tokens/s, capacity, and whether drafting pays",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (None: of this process's arguments); returns the exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        if given and given[0] in _TOOLS:
            _run_tool(given[0], given[1:])
            return 0
        arguments = _parser().parse_args(given)
        arguments.run(arguments)
    except OutriderError as error:
        print(f"outrider: error: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="outrider", description="Serve large language models by distributed speculative decoding."
    )
    parser.add_argument("--version", action="version", version=f"outrider {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_deploy(commands)
    _add_top(commands)
    _add_chat(commands)
    _add_config(commands)
    _add_models(commands)
    _add_distill(commands)
    _add_bench(commands)
    for name, text in _TOOLS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _add_serve(commands: "_Commands") -> None:
    serve = commands.add_parser("serve", help="start a cluster on this machine and serve the API until Ctrl-C")
    _add_config_options(serve)
    serve.set_defaults(run=_serve)


def _add_deploy(commands: "_Commands") -> None:
    deploy = commands.add_parser("deploy", help="put the service on a running Ray cluster, update it, or remove it")
    deploy.add_argument("--address", required=True, help="of the cluster: auto, host:6379 or ray://host:10001")
    deploy.add_argument("--remove", action="store_true", help="take the service away")
    _add_config_options(deploy)
    deploy.set_defaults(run=_deploy)


def _add_top(commands: "_Commands") -> None:
    top = commands.add_parser("top", help="watch a running service in the terminal")
    _add_url(top)
    top.add_argument("--interval-s", type=float, default=1.0, help="seconds between two polls (default: %(default)s)")
    top.add_argument("--once", action="store_true", help="print one picture, of two polls")
    top.set_defaults(run=_top)


def _add_chat(commands: "_Commands") -> None:
    chat = commands.add_parser("chat", help="talk to a running service in the terminal")
    _add_url(chat)
    add = chat.add_argument
    add("--model", help="name of the model (default: the one the service has)")
    add("--temperature", type=float, help="0 is greedy")
    add("--seed", type=int, help="the same seed gives the same answer")
    add("--max-tokens", type=int, help="length limit of an answer")
    add("--window", type=int, help="draft tokens per round (default: the service chooses)")
    add("--protocol", help="what crosses the link, such as token_ids or tslt (default: the service chooses)")
    add("--slo-class", help="whose token speed to be promised (default: the service's)")
    add("--system", metavar="TEXT", help="system message")
    add("prompt", nargs="?", metavar="PROMPT", help="ask this and exit (default: a conversation)")
    chat.set_defaults(run=_chat)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of the service (default: %(default)s)")


def _add_config(commands: "_Commands") -> None:
    config = commands.add_parser("config", help="show or check the configuration")
    actions = config.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print every field as it will be used, as YAML")
    check = actions.add_parser("check", help="report everything that is wrong with the configuration")
    for action, run in ((show, _config_show), (check, _config_check)):
        _add_config_options(action)
        action.set_defaults(run=run)


def _add_models(commands: "_Commands") -> None:
    models = commands.add_parser("models", help="manage the embedded models")
    actions = models.add_subparsers(required=True, metavar="ACTION")
    fetch = actions.add_parser("fetch", help="fetch and convert the embedded target, if it is not there yet")
    fetch.set_defaults(run=_models_fetch)


def _add_distill(commands: "_Commands") -> None:
    """Only flags that are given are passed on: the defaults are those of ``DistillConfig``."""
    distill = commands.add_parser(
        "distill", help="make a drafter for a target from the target's own layers", argument_default=argparse.SUPPRESS
    )
    add = distill.add_argument
    add("--target", required=True, help="the embedded target's name, or a directory in Hugging Face format")
    add("--out", type=Path, required=True, help="file to write, ending in .safetensors")
    add("--steps", type=int, help="of the optimiser")
    add("--layers", type=int, help="how many of the target's first layers the drafter gets")
    add("--batch", type=int, help="traces per step")
    add("--learning-rate", type=float, help="peak; less where --init-from is given")
    add("--vocab-k", type=int, help="train on so many of the most frequent tokens")
    add("--hidden-weight", type=float, help="of the loss on the final hidden state")
    add("--seed", type=int, help="of the traces and of the order of batches")
    add("--traces", type=Path, help="training data made before; without it, the target makes it")
    add("--trace-count", type=int, help="responses to make")
    add("--prompts", type=Path, help="text file, one prompt a line, to make responses to")
    add("--max-new-tokens", type=int, help="length limit of a response")
    add("--resume", action=argparse.BooleanOptionalAction, help="go on from the checkpoint, if there is one")
    add("--checkpoint-every-steps", type=int, help="steps between two checkpoints")
    add("--init-from", type=Path, help="a drafter of this target to begin from")
    add("--dtype", choices=("float32", "bfloat16"), help="of the target while training")
    add("--device", help="cpu, cuda or another torch device")
    add("--threads", type=int, help="of computation")
    distill.set_defaults(run=_distill)


def _add_bench(commands: "_Commands") -> None:
    bench = commands.add_parser("bench", help="measure; `outrider bench NAME --help` lists a benchmark's own options")
    bench.add_argument("name", choices=_BENCHES, metavar="NAME", help=", ".join(_BENCHES))
    bench.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="passed to the benchmark")
    bench.set_defaults(run=_bench)


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=os.environ.get("OUTRIDER_CONFIG"),
        help="YAML file (default: $OUTRIDER_CONFIG, else the built-in configuration)",
    )
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one field, such as verifiers.threads=2; may be repeated",
    )


def _read_config(arguments: argparse.Namespace) -> "Config":
    from outrider.config.reading import load_config, override

    return override(load_config(arguments.config), arguments.assignments)


def _checked_config(arguments: argparse.Namespace) -> "Config":
    """With the files it names: a mistake in one is found before anything starts."""
    from outrider.costs.profiles import read_profile

    config = _read_config(arguments)
    for path in config.scheduling.cost_profiles:
        read_profile(path)
    return config


def _serve(arguments: argparse.Namespace) -> None:
    config = _checked_config(arguments)
    from cluster.local import serve_locally

    serve_locally(config)


def _deploy(arguments: argparse.Namespace) -> None:
    config = _read_config(arguments) if arguments.remove else _checked_config(arguments)
    from cluster.deploy import deploy, remove

    act = remove if arguments.remove else deploy
    act(config, arguments.address, show=lambda line: print(line, flush=True))


def _top(arguments: argparse.Namespace) -> None:
    from cluster.top import top

    top(arguments.url, arguments.interval_s, once=arguments.once)


def _chat(arguments: argparse.Namespace) -> None:
    from cluster.chat import chat

    chat(arguments)


def _config_show(arguments: argparse.Namespace) -> None:
    config = _read_config(arguments)
    from outrider.config.reading import to_yaml

    print(to_yaml(config), end="")


def _config_check(arguments: argparse.Namespace) -> None:
    _checked_config(arguments)
    print(f"{arguments.config or 'the built-in configuration'}: ok")


def _models_fetch(_: argparse.Namespace) -> None:
    from outrider.models.embedded import ensure_embedded_target

    print(ensure_embedded_target(progress=True))


def _distill(arguments: argparse.Namespace) -> None:
    from outrider.training.distillation.distill import DistillConfig, distill

    flags = vars(arguments)
    del flags["run"]
    report = distill(DistillConfig(**flags))
    print(f"{report.out}: {report.steps} steps on {report.trained_tokens} tokens, last loss {report.last_loss:.4f}")
    print("acceptance on held-out responses, before -> after:")
    for measure in ("greedy", "overlap", "shared_noise"):
        values = [getattr(moment, measure) for moment in (report.before, report.after)]
        print(f"  {measure}: " + " -> ".join("not measured" if value is None else f"{value:.3f}" for value in values))


def _bench(arguments: argparse.Namespace) -> None:
    _run_tool(arguments.name.replace("-", "_"), arguments.arguments)


def _run_tool(name: str, arguments: list[str]) -> None:
    try:
        tool = import_module(f"bench.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ParameterError(name, "matplotlib (pip install 'outrider[bench]')", "no such package") from error
    tool.main(arguments)


if __name__ == "__main__":
    sys.exit(main())

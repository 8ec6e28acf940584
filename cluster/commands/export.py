"""Export a draft model to one file that devices draft with, without torch, Ray or the target's files."""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("what", choices=("drafter",), help="what to export")
    add = parser.add_argument
    add("--model", default="embedded", help="embedded, a file of `outrider distill`, or a causal LM (%(default)s)")
    add("--target", default="embedded", help="what it drafts for: name, or folder in Hugging Face format (%(default)s)")
    add("--out", type=Path, required=True, help="file to write, ending in .onnx")


def run(arguments: argparse.Namespace) -> None:
    import hashlib

    from outrider.contracts.errors import ParameterError
    from outrider.engines.onnx.export import export_drafter
    from outrider.engines.onnx.kind import SUFFIX
    from outrider.models.loading import load_drafter

    if arguments.out.suffix != SUFFIX:
        raise ParameterError("--out", f"a file that ends in {SUFFIX}", str(arguments.out))
    made = export_drafter(load_drafter(arguments.model, arguments.target, dtype="float32", device="cpu"), arguments.out)
    with arguments.out.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    identity = made.drafter.identity
    print(f"{arguments.out}: {made.size_bytes / 1e6:.0f} MB, proposes {made.drafter.columns} tokens")
    for name, value in (*vars(identity).items(), ("sha256", digest)):
        print(f"  {name}: {value}")

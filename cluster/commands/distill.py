"""Distil a drafter for a target from the target's own layers."""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Only given options are passed on: ``DistillConfig`` has the defaults."""
    parser.description = __doc__
    parser.argument_default = argparse.SUPPRESS
    add = parser.add_argument
    add("--target", required=True, help="the embedded target's name, or a directory in Hugging Face format")
    add("--out", type=Path, required=True, help="file to write, ending in .safetensors")
    add("--steps", type=int, help="optimiser steps; 0 with --init-from: only another head")
    add("--layers", type=int, help="number of the target's first layers that the drafter copies")
    add("--batch", type=int, help="traces per step")
    add("--learning-rate", type=float, help="peak; lower with --init-from")
    add("--vocab-k", type=int, help="the loss covers this many of the most frequent tokens")
    add("--head-tokens", type=int, help="number of the most frequent tokens that the drafter may propose")
    add("--hidden-weight", type=float, help="weight of the loss on the final hidden state")
    add("--seed", type=int, help="of the traces and of the order of batches")
    add("--traces", type=Path, help="existing training data; without it, the target makes it")
    add("--trace-count", type=int, help="responses to make")
    add("--prompts", type=Path, help="text file, one prompt a line, to make responses to")
    add("--own-prompts", type=float, help="share of responses to prompts that the target writes itself, 0 to 1")
    add("--max-new-tokens", type=int, help="length limit of a response")
    add("--resume", action=argparse.BooleanOptionalAction, help="resume from the checkpoint, if there is one")
    add("--checkpoint-every-steps", type=int, help="steps between two checkpoints")
    add("--init-from", type=Path, help="a drafter of this target to start from, with at most as many layers")
    add("--dtype", choices=("float32", "bfloat16"), help="the target's in training")
    add("--device", help="cpu, cuda or another torch device")
    add("--threads", type=int, help="CPU threads")


def run(arguments: argparse.Namespace) -> None:
    from outrider.training.distillation.distill import DistillConfig, distill

    flags = vars(arguments)
    del flags["run"]
    report = distill(DistillConfig(**flags))
    print(f"{report.out}: {report.steps} steps on {report.trained_tokens} tokens, last loss {report.last_loss:.4f}")
    print("acceptance on held-out responses, before -> after:")
    for measure in ("greedy", "overlap", "shared_noise"):
        values = [getattr(moment, measure) for moment in (report.before, report.after)]
        print(f"  {measure}: " + " -> ".join("not measured" if value is None else f"{value:.3f}" for value in values))

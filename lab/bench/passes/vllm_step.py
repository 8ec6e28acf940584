"""vLLM's own model step in its own process (``vllm_worker``), which times passes on request.

Request and answer are lines of JSON: ``{"rows", "generations", "context_tokens", "passes"}``, then a list of seconds.
The first answer is an empty list, or says why the step cannot be measured.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile

from lab.bench.passes.shapes import PassShape, Pool
from outrider.assembly.verifiers import process_variables
from outrider.contracts.errors import OutriderError
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits

_LOG_CHARS = 400
_STOP_DEADLINE_S = 30.0


class VllmStepError(OutriderError):
    """vLLM's step cannot be measured."""


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings of the process."""

    target: str
    dtype: str
    threads: int
    pool: Pool

    def spec(self, kv_bytes: int) -> VerifierSpec:
        """Settings of the engine with this much KV."""
        return VerifierSpec(
            "vllm", self.target, self.dtype, "cpu", self.threads, EngineLimits(kv_bytes, self.pool.block_tokens)
        )


class VllmStep:
    """Client of the process, with the interface of an arm in this process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """``process`` is ready for requests."""
        self._process = process

    def seconds(self, shape: PassShape, context_tokens: int, passes: int) -> list[float]:
        """Times of ``passes`` passes.

        Raises:
            VllmStepError: the process has died.
        """
        return [
            float(one)
            for one in _asked(self._process, {**asdict(shape), "context_tokens": context_tokens, "passes": passes})
        ]


@contextmanager
def vllm_step(settings: StepSettings) -> Iterator[VllmStep]:
    """Run the process while the block is open.

    Raises:
        VllmStepError: it does not start.
    """
    environment = {**os.environ, **process_variables(settings.spec(0), Path(sys.prefix))}
    command = [sys.executable, "-m", "lab.bench.passes.vllm_worker", json.dumps(asdict(settings))]
    with TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        try:
            assert process.stdout is not None, "a pipe"
            said = process.stdout.readline()
            if said.strip() != "[]":
                log.seek(0)
                raise VllmStepError(f"needs vLLM to start, found {said.strip() or log.read().strip()[-_LOG_CHARS:]}")
            yield VllmStep(process)
        finally:
            _stop(process)


def _asked(process: "subprocess.Popen[str]", question: Mapping[str, int]) -> list[float]:
    assert process.stdin is not None, "a pipe"
    assert process.stdout is not None, "a pipe"
    try:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        answer = ""
    if not answer:
        raise VllmStepError(f"needs an answer of vLLM's process, found that it ended ({process.poll()})")
    return list(json.loads(answer))


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()  # the process ends with its input
    try:
        process.wait(_STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

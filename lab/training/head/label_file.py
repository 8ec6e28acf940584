"""Label file that an interrupted run resumes: JSON lines, a header, then one task a line, in order.

A line is ``{"task": key, "digest": of the task, "answer": token ids, "score": its score, "found": mismatches in all,
"replaced": [[index, offset, the target's token, the drafter's, score], ..]}``. Hidden states are not stored: one pass
over prompt and answer computes them again.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lab.training.head.mismatches import Mismatch
from lab.training.head.pair import EncodedTask, LoadedPair, Pair
from lab.training.head.replacing import LabelledAnswer, Replaced, Sampling, label_answers
from outrider.contracts.errors import ParameterError

_FORMAT = 1
_PASSES_SHOWN = 20


def make_labels(
    pair: Pair, tasks: Sequence[EncodedTask], file: Path, sampling: Sampling, *, batch: int, progress: bool = True
) -> list[LabelledAnswer]:
    """Label the answers to all tasks, resuming where an earlier run stopped.

    Raises:
        ParameterError: ``file`` holds labels of another pair, of other tasks or made in another way.
    """
    header = {"header": header_of(pair.models, sampling, tasks)}
    labelled = read_labels(file, tasks, header["header"])
    waiting = tasks[len(labelled) :]
    if not waiting:
        return labelled  # and keep the labels of later tasks in the file
    _rewrite(file, header, labelled)
    bar = tqdm(total=len(tasks), initial=len(labelled), desc="replacing", unit="task", disable=not progress)
    written = passes = 0

    def count(tokens: int) -> None:
        nonlocal written, passes
        written, passes = written + tokens, passes + 1
        bar.set_postfix(tokens=written, refresh=passes % _PASSES_SHOWN == 0)

    with bar, file.open("a", encoding="utf-8") as stream:
        for answer in label_answers(pair, waiting, sampling, batch=batch, on_written=count):
            stream.write(_line(answer))
            stream.flush()
            labelled.append(answer)
            bar.update()
    return labelled


def header_of(models: LoadedPair, sampling: Sampling, tasks: Sequence[EncodedTask]) -> dict[str, Any]:
    """Return everything besides the tasks that decides the labels."""
    return {
        "format": _FORMAT,
        "target": models.target.model_hash,
        "drafter": models.drafter.model_hash,
        "dtype": models.spec.dtype,
        "drafter_dtype": models.spec.drafter_dtype,
        "max_new_tokens": tasks[0].most_tokens,
        **asdict(sampling),
    }


def read_labels(file: Path, tasks: Sequence[EncodedTask], header: dict[str, Any]) -> list[LabelledAnswer]:
    """Read the labels of the first tasks, as far as the file goes; none if there is no file.

    Raises:
        ParameterError: the file has another header or labels other tasks.
    """
    if not file.exists():
        return []
    records = _records(file)
    _check_header(file, records[0] if records else {}, header)
    labelled: list[LabelledAnswer] = []
    for asked, record in zip(tasks, records[1:], strict=False):
        if (record["task"], record["digest"]) != (asked.task.key, _digest(asked)):
            needed = f"labels of these tasks in this order ({asked.task.key} next), or another file"
            raise ParameterError("labels", needed, f"task {record['task']} or another wording of it in {file}")
        replaced = tuple(Replaced(Mismatch(*numbers), score) for *numbers, score in record["replaced"])
        answer_ids = tuple(record["answer"])
        labelled.append(LabelledAnswer(asked, answer_ids, record["score"], record["found"], replaced))
    return labelled


def _records(file: Path) -> list[dict[str, Any]]:
    """Return the complete lines; a line that a killed run left half-written is dropped."""
    records: list[dict[str, Any]] = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ParameterError("labels", "a file of JSON lines that `outrider train head` made", str(file)) from error
    return records


def _check_header(file: Path, first: dict[str, Any], header: dict[str, Any]) -> None:
    found = first.get("header")
    if found is None and first:
        raise ParameterError("labels", "a file that `outrider train head` made", f"no header in {file}")
    if found is None:
        return
    differing = [key for key in {**header, **found} if header.get(key) != found.get(key)]
    if differing:
        ours, theirs = ({key: one.get(key) for key in differing} for one in (header, found))
        needed = f"labels of this pair, made in this way ({_named(ours)}), or another file, or this one deleted"
        raise ParameterError("labels", needed, f"{_named(theirs)} in {file}")


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _rewrite(file: Path, header: dict[str, Any], labelled: Sequence[LabelledAnswer]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"partial-{file.name}")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(header) + "\n")
        stream.writelines(map(_line, labelled))
    partial.replace(file)


def _line(answer: LabelledAnswer) -> str:
    replaced = [
        [one.mismatch.index, one.mismatch.offset, one.mismatch.target_id, one.mismatch.draft_id, one.score]
        for one in answer.replaced
    ]
    return (
        json.dumps(
            {
                "task": answer.asked.task.key,
                "digest": _digest(answer.asked),
                "answer": list(answer.answer_ids),
                "score": answer.score,
                "found": answer.found,
                "replaced": replaced,
            }
        )
        + "\n"
    )


def _digest(asked: EncodedTask) -> str:
    """Digest of everything in a task that decides its answer and score."""
    return hashlib.sha256(json.dumps([asked.prompt_ids, asdict(asked.task)]).encode()).hexdigest()[:16]

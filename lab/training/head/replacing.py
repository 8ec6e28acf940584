"""Base labels: replace one token of the target's answer by the drafter's, let the target finish, score again.

A mismatch is critical (label 1) iff that lowers the score (WISV section V-B, stage 1). Answers and replaced answers are
generated in one batch; a replaced answer shares its prefix's KV with the original. No mismatch is tried in an answer
that scores 0, as no replacement can lower it.
"""

import hashlib
import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lab.training.head.mismatches import Mismatch, along, find_mismatches
from lab.training.head.paged_texts import PagedText
from lab.training.head.pair import EncodedTask, LoadedPair, Pair
from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Replaced:
    """A mismatch, and the score of the answer after its replacement."""

    mismatch: Mismatch
    score: float


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    asked: EncodedTask  # the task
    answer_ids: tuple[int, ...]  # the target's greedy answer, its end-of-sequence token included
    score: float  # of the answer
    found: int  # number of mismatches
    replaced: tuple[Replaced, ...]  # the tried mismatches, in order

    @property
    def labels(self) -> tuple[int, ...]:
        """1 for each tried mismatch that must be rejected."""
        return tuple(int(one.score < self.score) for one in self.replaced)


@dataclass(frozen=True, slots=True)
class Sampling:
    most_per_task: int | None = None  # None: all
    seed: int = 0

    def of(self, asked: EncodedTask, found: Sequence[Mismatch]) -> list[Mismatch]:
        """The mismatches to try in one answer, in order."""
        if self.most_per_task is None or len(found) <= self.most_per_task:
            return list(found)
        drawing = random.Random(f"{self.seed} {asked.task.key}")  # noqa: S311  a sample, not a secret
        return sorted(drawing.sample(list(found), self.most_per_task), key=lambda one: one.index)


@dataclass(slots=True, eq=False)
class _Open:
    """An answer being generated, or kept until all its replacements are."""

    number: int
    asked: EncodedTask
    text: PagedText
    score: float = 0.0
    found: int = 0
    waiting: deque[Mismatch] = field(default_factory=deque)
    writing: int = 0
    replaced: list[Replaced] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _AnswerInProgress:
    """A text that grows by one token a pass."""

    opened: _Open
    text: PagedText
    mismatch: Mismatch | None  # None: it is the answer itself


def texts_needed(batch: int) -> int:
    return batch + _most_open(batch)


def label_answers(
    pair: Pair,
    tasks: Sequence[EncodedTask],
    sampling: Sampling,
    *,
    batch: int,
    on_written: Callable[[int], None] = lambda _tokens: None,
) -> Iterator[LabelledAnswer]:
    """Label answers, in the order of the tasks; ``pair`` has KV for ``texts_needed(batch)`` texts."""
    coming = deque(enumerate(tasks))
    opened: list[_Open] = []
    writing: list[_AnswerInProgress] = []
    done: dict[int, LabelledAnswer] = {}
    given = 0
    while given < len(tasks):
        writing += _begun(pair, coming, opened, batch - len(writing), _most_open(batch))
        if writing:
            chosen = pair.target.run([one.text for one in writing], [1] * len(writing)).choices()
            on_written(len(writing))
            writing = _after(pair, writing, [token_id for (token_id,) in chosen], sampling)
        for ended in [one for one in opened if not one.waiting and not one.writing]:
            opened.remove(ended)
            pair.target.release(ended.text)
            done[ended.number] = _labelled(ended)
        while given in done:
            yield done.pop(given)
            given += 1


def _most_open(batch: int) -> int:
    """Answers whose KV is kept at once."""
    return max(1, batch // 4)


def _begun(
    pair: Pair, coming: deque[tuple[int, EncodedTask]], opened: list[_Open], room: int, most_open: int
) -> list[_AnswerInProgress]:
    """Fill the batch: answers first, as replacements come from them. A replacement complete at once is scored here."""
    begun: list[_AnswerInProgress] = []
    while coming and len(opened) < most_open and len(begun) < room:
        number, asked = coming.popleft()
        opened.append(_Open(number, asked, PagedText(list(asked.prompt_ids)), writing=1))
        begun.append(_AnswerInProgress(opened[-1], opened[-1].text, None))
    for one in opened:
        while one.waiting and len(begun) < room:
            mismatch = one.waiting.popleft()
            text = pair.target.fork(one.text, len(one.asked.prompt_ids) + mismatch.offset)
            text.extend([mismatch.draft_id])
            writing = _AnswerInProgress(one, text, mismatch)
            if _complete(pair, writing):
                _note(pair, writing, mismatch)
            else:
                one.writing += 1
                begun.append(writing)
    return begun


def _after(
    pair: Pair, writing: Sequence[_AnswerInProgress], token_ids: Sequence[int], sampling: Sampling
) -> list[_AnswerInProgress]:
    """Append a token to each text; return the incomplete ones."""
    going: list[_AnswerInProgress] = []
    for one, token_id in zip(writing, token_ids, strict=True):
        one.text.extend([token_id])
        if _complete(pair, one):
            _close(pair, one, sampling)
        else:
            going.append(one)
    return going


def _complete(pair: Pair, one: _AnswerInProgress) -> bool:
    asked, ids = one.opened.asked, one.text.token_ids
    return pair.ends(ids[-1]) or len(ids) - len(asked.prompt_ids) >= asked.most_tokens


def _answer(one: _Open, text: PagedText) -> list[int]:
    return text.token_ids[len(one.asked.prompt_ids) :]


def _close(pair: Pair, one: _AnswerInProgress, sampling: Sampling) -> None:
    opened = one.opened
    opened.writing -= 1
    if one.mismatch is not None:
        _note(pair, one, one.mismatch)
        return
    answer = _answer(opened, one.text)
    opened.score = pair.score(opened.asked.task, answer)
    (drafted,) = along(pair.drafter, opened.asked.prompt_ids, answer, want_hidden=False).choices()
    found = find_mismatches(drafted, answer)
    opened.found = len(found)
    if opened.score > 0.0:
        opened.waiting.extend(sampling.of(opened.asked, found))


def _note(pair: Pair, one: _AnswerInProgress, mismatch: Mismatch) -> None:
    score = pair.score(one.opened.asked.task, _answer(one.opened, one.text))
    one.opened.replaced.append(Replaced(mismatch, score))
    pair.target.release(one.text)


def _labelled(one: _Open) -> LabelledAnswer:
    replaced = tuple(sorted(one.replaced, key=lambda each: each.mismatch.index))
    return LabelledAnswer(one.asked, tuple(_answer(one, one.text)), one.score, one.found, replaced)


# A label file has JSON lines: a header, then one task a line, in order: {"task": key, "digest": of the task, "answer":
# token ids, "score": its score, "found": mismatches in all, "replaced": [[index, offset, the target's token, the
# drafter's, score], ..]}. Hidden states are not stored: one pass over prompt and answer computes them again.
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

"""Training tokens from rounds that devices logged in service; ``drafting.round_log`` says what logs leave out.

Folders may be of several devices, and copies. Of copies of one file the longest is taken; a request that moved between
devices stays one. A prompt sent greedily twice gives the same text and so the same rows, to the bit: requests that
share a row stay on one side of a split, or the test would contain training data.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lab.training.predictor.drafted import LEAST_PROMPTS, DraftedTokens, Ints
from lab.training.predictor.log_reading import RoundLogContents, read_log
from lab.training.predictor.pair_names import PairNames
from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.round_log import SUFFIX, LoggedRound

_DISTINCT = 0.999  # two rows with a confidence below this are never equal by chance


@dataclass(frozen=True, slots=True)
class LoggedRounds:
    """Logged rounds of one pair and rule.

    Attributes:
        texts: groups of requests that share no row with any other group; each a number, as a sequence of one.
    """

    tokens: DraftedTokens  # of the rounds; ``prompt`` is an index of ``texts``
    texts: tuple[tuple[int], ...]
    requests: int  # number
    rounds: int  # number
    files: int  # number read
    copies: int  # files left out as copies of others
    unread_bytes: int  # behind the first incomplete or damaged record of each file
    stops: Mapping[str, int]  # rounds by the rule that ended their drafts

    def check_enough(self, least_tokens: int) -> None:
        """Raise ``ParameterError`` if there are too few tokens; it says how many rounds are needed."""
        each = len(self.tokens) / self.rounds
        if len(self.tokens) < least_tokens:
            needed = (
                f"at least {least_tokens} tested draft tokens, some {round(least_tokens / each)} rounds of {each:.1f} "
                "(log on, or lower --least-tokens)"
            )
            raise ParameterError("rounds", needed, f"{len(self.tokens)} tokens in {self.rounds} rounds")
        if len(self.texts) < LEAST_PROMPTS:
            needed = f"rounds of at least {LEAST_PROMPTS} requests that differ, one for each part"
            raise ParameterError("rounds", needed, f"{self.rounds} rounds of {len(self.texts)}")


def read_logs(folders: Sequence[Path], pair: PairNames, rule: AcceptanceRule) -> LoggedRounds:
    """Read all rounds of a pair and a rule, at any temperature; folders of devices are searched recursively.

    Raises:
        ParameterError: a folder is missing or holds no log, no log is of this pair and rule (the message lists those
            found), or a file is no log.
    """
    logs = [log for folder in folders for log in _logs(folder)]
    every = [log for _, log in logs if log is not None and _is_of(log, pair, rule)]
    own = _without_copies(every)
    rounds = [each for log in own for each in log.rounds]
    if not rounds:
        needed = f"rounds of rule {rule}, drafter {pair.drafter} ({pair.drafter_hash}) and target {pair.target} "
        raise ParameterError("rounds", f"{needed}({pair.target_hash})", _found(folders, logs))
    numbers = tuple(dict.fromkeys(each.generation for each in rounds))
    stops = Counter[str]()
    for log in own:
        stops[log.header.stops] += len(log.rounds)
    tokens = _tokens(rounds, numbers)
    firsts, text = np.unique(_texts(tokens, len(numbers)), return_inverse=True)
    return LoggedRounds(
        tokens=replace(tokens, prompt=text[tokens.prompt].astype(np.int64)),
        texts=tuple((numbers[first],) for first in firsts),
        requests=len(numbers),
        rounds=len(rounds),
        files=len(own),
        copies=len(every) - len(own),
        unread_bytes=sum(log.unread_bytes for log in own),
        stops=stops,
    )


def _logs(folder: Path) -> Iterator[tuple[Path, RoundLogContents | None]]:
    """The logs in a folder, None for an empty one."""
    if not folder.is_dir():
        raise ParameterError("rounds", "folders that devices logged rounds to, or one *.safetensors file", str(folder))
    for file in sorted(folder.rglob(f"*{SUFFIX}")):
        try:
            yield file, read_log(file.read_bytes())
        except ParameterError as error:
            raise ParameterError("rounds", error.needed, f"{error.found} in {file}") from error


def _is_of(log: RoundLogContents, pair: PairNames, rule: AcceptanceRule) -> bool:
    reported = log.header
    return (reported.drafter_hash, reported.target_hash, reported.rule) == (pair.drafter_hash, pair.target_hash, rule)


def _without_copies(logs: Sequence[RoundLogContents]) -> list[RoundLogContents]:
    """The longest copy of each file, in order of first appearance."""
    longest: dict[str, RoundLogContents] = {}
    for log in logs:
        if len(log.rounds) >= len(longest.get(log.header.file, log).rounds):
            longest[log.header.file] = log
    return list(longest.values())


def _found(folders: Sequence[Path], logs: Sequence[tuple[Path, RoundLogContents | None]]) -> str:
    others = Counter[str]()
    for _, log in logs:
        if log is not None:
            others[str(log.header)] += len(log.rounds)
    if others:
        return "; ".join(f"{count} of {header}" for header, count in others.items())
    return f"{len(logs)} *{SUFFIX} files, all without any, in {', '.join(map(str, folders))}"


def _tokens(rounds: Sequence[LoggedRound], numbers: Sequence[int]) -> DraftedTokens:
    index = {number: at for at, number in enumerate(numbers)}
    lengths = [len(each.features) for each in rounds]
    accepted = np.ones(sum(lengths), np.int64)
    accepted[(np.cumsum(lengths) - 1)[[each.rejected for each in rounds]]] = 0
    return DraftedTokens(
        features=np.concatenate([each.features for each in rounds]).astype(np.float64).reshape(-1, len(FEATURE_NAMES)),
        accepted=accepted,
        temperature=np.repeat([each.temperature for each in rounds], lengths).astype(np.float64),
        prompt=np.repeat([index[each.generation] for each in rounds], lengths).astype(np.int64),
    )


def _texts(tokens: DraftedTokens, requests: int) -> Ints:
    """``[requests]``: for each the first request that it shares a row with, directly or through others."""
    first = list(range(requests))

    def root(request: int) -> int:  # union-find with path halving
        while first[request] != request:
            first[request] = request = first[first[request]]
        return request

    owner: dict[bytes, int] = {}
    for row, request in zip(tokens.features, tokens.prompt.tolist(), strict=True):
        if row[0] < _DISTINCT:
            one, other = root(request), root(owner.setdefault(row.tobytes(), request))
            first[max(one, other)] = min(one, other)
    return np.array([root(request) for request in range(requests)], np.int64)

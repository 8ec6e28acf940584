"""What crosses between coordinator, verifier and fleet: one call per batch, one lease per generation."""

from dataclasses import dataclass

from outrider.engines.base import Block, DraftAnswer, KvUsage, OpenGeneration, Outcome, Resolution
from outrider.types import GenerationId


@dataclass(frozen=True, slots=True)
class Closing:
    """A generation to forget; its full blocks stay in the prefix cache iff ``keep_cache``."""

    generation: GenerationId
    keep_cache: bool


@dataclass(frozen=True, slots=True)
class VerifyCall:
    """Everything a verifier is told at once. Applied in the order of the fields, so a block may follow its opening."""

    closings: tuple[Closing, ...] = ()
    openings: tuple[OpenGeneration, ...] = ()
    blocks: tuple[Block, ...] = ()
    resolutions: tuple[Resolution, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReply:
    """Outcomes in the order of the call's blocks, then resolutions, and where the time went."""

    outcomes: tuple[Outcome, ...]
    refused_openings: dict[GenerationId, str]  # why a generation could not be opened
    engine_s: float  # forward pass and acceptance
    waited_s: float  # from arrival in the actor until the engine was free
    idle_s: float  # the engine had nothing to do before this call
    usage: KvUsage


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Who an engine is: what must agree between a drafter and its target."""

    name: str
    model_hash: str
    token_map_hash: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_context_tokens: int


@dataclass(frozen=True, slots=True)
class DraftReply:
    """A drafter's answer and the seconds it spent in the drafter, so that the rest of the call is the link's."""

    answer: DraftAnswer
    drafter_s: float


@dataclass(frozen=True, slots=True, order=True)
class DrafterId:
    """One drafter actor; also its actor name."""

    group: str
    index: int

    @property
    def actor_name(self) -> str:
        """Name under which the actor is registered in Ray."""
        return f"drafter-{self.group}-{self.index}"

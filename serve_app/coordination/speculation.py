"""What a coordinator may draft with: its configuration and the model's vocabulary put together."""

from dataclasses import dataclass

from outrider.config.schema import Config
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName


@dataclass(frozen=True, slots=True)
class Speculation:
    """The round loops' piece of the configuration.

    Attributes:
        protocols: to choose from.
        k_max: the longest draft.
        window: fixed for all requests that name none; None leaves it to the policy.
        expansion: fixed tree shape; () leaves it to the policy.
        wire: how messages are written.
        has_drafters: whether there are any.
    """

    protocols: tuple[ProtocolName, ...]
    k_max: int
    window: int | None
    expansion: tuple[int, ...]
    wire: WireFormat
    has_drafters: bool

    @classmethod
    def from_config(cls, config: Config, vocab_size: int) -> "Speculation":
        """Take what concerns the round loops; a fixed policy has one protocol, the first."""
        speculation = config.speculation
        fixed = speculation.policy == "fixed"
        return cls(
            protocols=speculation.protocols[:1] if fixed else speculation.protocols,
            k_max=speculation.k_max,
            window=speculation.window,
            expansion=speculation.expansion,
            wire=config.wire.format(vocab_size),
            has_drafters=config.drafter_count > 0,
        )

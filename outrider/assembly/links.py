"""Build the emulated link that a drafter group's configuration describes."""

from outrider.config.drafters import LinkConfig
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.link.trace import LinkSource, load_trace


def link_source(config: LinkConfig | None) -> LinkSource | None:
    """Return the link to emulate, or None; a trace file that cannot be read, or is none, is a ``ConfigError``."""
    if config is None:
        return None
    if config.profile is not None:
        return PROFILES[config.profile]
    if config.trace is not None:
        return load_trace(config.trace)
    # The configuration has checked that one form is complete.
    assert config.up_mbps is not None
    assert config.down_mbps is not None
    assert config.rtt_ms is not None
    return LinkProfile(
        up_bps=config.up_mbps * 1e6,
        down_bps=config.down_mbps * 1e6,
        rtt_s=config.rtt_ms / 1e3,
        per_up=config.per_up or 0.0,
        per_down=config.per_down or 0.0,
        jitter_s=(config.jitter_ms or 0.0) / 1e3,
    )

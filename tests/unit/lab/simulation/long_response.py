"""One long response of a simulated device, round by round, without a verifier."""

from lab.simulation.drafted_rounds import ModelledDevice, SimDraft


def rounds_of(device: ModelledDevice) -> list[SimDraft]:
    """Of its next response."""
    response = device.begin()
    assert response is not None
    made, committed = list[SimDraft](), 1
    while committed < response.output_tokens:
        made.append(device.draft(committed, response.output_tokens - committed, None))
        committed += made[-1].accepted + 1
    assert committed == response.output_tokens  # a draft never runs past the end
    return made


def mean_tokens(made: list[SimDraft]) -> float:
    """Committed by a round."""
    return sum(draft.accepted + 1 for draft in made) / len(made)

import pytest

from outrider.contracts.errors import EngineUnavailableError
from outrider.sampling import noise_check
from outrider.versions import VERSIONS


def test_this_machine_makes_the_noise_of_all_others() -> None:
    noise_check.check_noise()
    assert VERSIONS.noise.newest == 2, "the hash is of this version: compute it anew"


def test_another_noise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_check, "NOISE_SHA256", "0" * 64)
    with pytest.raises(EngineUnavailableError, match=r"needs noise with sha256 0+, found .* install another build"):
        noise_check.check_noise()

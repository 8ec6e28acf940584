"""Check that this machine makes the noise that all others make: other bits would be right by chance only."""

import hashlib

import numpy as np

from outrider.contracts.errors import EngineUnavailableError
from outrider.sampling.noise import Purpose, gumbel_noise, noisy_scores, uniforms

# Of version 2 of the noise (``outrider.versions``): x86-64 and aarch64, numpy 2.2 to 2.4.
NOISE_SHA256 = "ee374b534b65b8e5826d7eff384a81acc2eca78a414af7ef07765b210d344378"
_VOCABULARY = 49_152
_KEYS = ((0, 0), (7, 128), (2**63 + 5, 4096), (123_456_789, 77))  # seeds and positions


def noise_sha256() -> str:
    """Return a hash over noise and uniforms of some keys, and over scores of a row; 15 ms."""
    digest = hashlib.sha256()
    for seed, position in _KEYS:
        digest.update(gumbel_noise(seed, position, Purpose.TARGET_TOKEN, _VOCABULARY).astype("<f4").tobytes())
        digest.update(uniforms(seed, position, Purpose.ACCEPT, 256).astype("<f8").tobytes())
    some = np.arange(0, _VOCABULARY, 3, dtype=np.int64)
    digest.update(gumbel_noise(9, 9, Purpose.TARGET_TOKEN, _VOCABULARY, token_ids=some).astype("<f4").tobytes())
    row = (np.arange(_VOCABULARY, dtype=np.int64) * 2_654_435_761 % 2_003).astype(np.float32) / np.float32(64)
    digest.update(noisy_scores(row, 3, 5).astype("<f4").tobytes())
    return digest.hexdigest()


def check_noise() -> None:
    """Raise ``EngineUnavailableError`` if this machine's noise is not that of all others."""
    if (found := noise_sha256()) != NOISE_SHA256:
        raise EngineUnavailableError(
            f"needs noise with sha256 {NOISE_SHA256}, found {found} with numpy {np.__version__}: drafts would be "
            "accepted by chance only; install another build of numpy"
        )

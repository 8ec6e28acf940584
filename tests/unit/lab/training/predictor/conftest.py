import pytest
import torch

from tests.unit.lab.training.head.tiny_pairs import save_pair


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Of a target and its drafter."""
    torch.set_num_threads(1)
    return save_pair(tmp_path_factory.mktemp("pair"), noise=0.05)

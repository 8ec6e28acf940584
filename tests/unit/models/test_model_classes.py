"""What a process of a model imports, in one of its own."""

import subprocess
import sys

MODULES = (
    "actors.verifier",
    "outrider.engines.torch.verifier",
    "outrider.engines.drafter.engine",
    "outrider.models.loading",
)


def test_a_models_process_imports_neither_scikit_learn_nor_scipys_optimisers() -> None:
    told = (
        f"import sys, {', '.join(MODULES)}; print(sorted({{'sklearn', 'scipy.optimize', 'torch'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['torch']"

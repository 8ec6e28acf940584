"""What a process of a model imports, in one of its own."""

import subprocess
import sys

NEEDLESS = ("sklearn", "scipy.optimize", "torch._dynamo", "torch._dynamo.symbolic_convert", "torch.distributed.tensor")
MODULES = (
    "actors.verifier.actor, outrider.engines.torch.verifier, outrider.engines.drafter.engine, outrider.models.loading"
)
LOADS = """
import torch
from outrider.assembly.verifiers import build_verifier, verifier_spec
from outrider.config.reading import load_config
from outrider.models.loading import empty_target, load_drafter, load_target
config = load_config()
build_verifier(verifier_spec(config.model, config.verifiers))
for loaded in (load_target("embedded", **AS), load_drafter("embedded", "embedded", **AS)):
    loaded.model(torch.tensor([[1, 2]]))
empty_target("embedded")
"""


def told_by(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_models_process_imports_no_compiler_and_nothing_of_learning() -> None:
    loads = LOADS.replace("AS", "{'dtype': 'float32', 'device': 'cpu'}")
    program = f"import sys, {MODULES}\n{loads}\nprint(sorted({{'torch', *{NEEDLESS}}} & set(sys.modules)))"
    assert told_by(program) == "['torch']"


def test_whoever_compiles_later_has_the_real_compiler() -> None:
    compiles = "import torch; print(torch.compile(lambda x: 2 * x, backend='eager')(torch.ones(2)).tolist())"
    assert told_by(f"import outrider.models.loading\n{compiles}") == "[2.0, 2.0]"
    loads_later = "import torch._dynamo as one, sys, outrider.models.loading"
    assert told_by(f"{loads_later}; print(sys.modules[one.__name__] is one)") == "True"

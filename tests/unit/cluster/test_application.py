from ray.serve._private.common import DeploymentStatus, DeploymentStatusTrigger
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview, DeploymentStatusOverview

from actors.messages import CoordinatorReport
from cluster.application import failure_line, machines_line
from outrider.costs.profiles import ProfiledOn


def deployment(message: str) -> DeploymentStatusOverview:
    return DeploymentStatusOverview(DeploymentStatus.UNHEALTHY, DeploymentStatusTrigger.UNSPECIFIED, {}, message)


def test_a_failure_names_what_was_raised() -> None:
    traceback = "The deployment failed to start 3 times.\nTraceback:\n  File x\nParameterError: dtype needs float32\n"
    deployments = {"Ingress": deployment(""), "Coordinator": deployment(traceback)}
    status = ApplicationStatusOverview(ApplicationStatus.DEPLOY_FAILED, "Failed to update.", 0.0, deployments)
    assert failure_line(status) == "Failed to update. ParameterError: dtype needs float32"


def report(name: str, dtype: str | None) -> CoordinatorReport:
    machine = None if dtype is None else ProfiledOn("Some GPU", "cuda", 1, "torch", "target", dtype)
    return CoordinatorReport(name, "ready", uptime_s=1.0, machine=machine)


def test_what_verifiers_compute_with_is_told_of_those_that_run() -> None:
    replaced, new, newer = report("replaced", "bfloat16"), report("new", "float32"), report("newer", "float16")
    assert machines_line([replaced, new], {"new"}) == "Verifier: torch in float32 on Some GPU"
    assert machines_line([replaced, new], {"new", "newer"}) == "", "one has not said so yet"
    assert machines_line([replaced, new, report("newer", None)], {"new", "newer"}) == ""
    both = "Verifier: torch in float32 on Some GPU; torch in float16 on Some GPU"
    assert machines_line([replaced, new, newer], {"new", "newer"}) == both
    assert machines_line([replaced], set()) == ""

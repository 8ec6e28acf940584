from ray.serve._private.common import DeploymentStatus, DeploymentStatusTrigger
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview, DeploymentStatusOverview

from cluster.application import failure_line


def deployment(message: str) -> DeploymentStatusOverview:
    return DeploymentStatusOverview(DeploymentStatus.UNHEALTHY, DeploymentStatusTrigger.UNSPECIFIED, {}, message)


def test_a_failure_names_what_was_raised() -> None:
    traceback = "The deployment failed to start 3 times.\nTraceback:\n  File x\nParameterError: dtype needs float32\n"
    deployments = {"Ingress": deployment(""), "Coordinator": deployment(traceback)}
    status = ApplicationStatusOverview(ApplicationStatus.DEPLOY_FAILED, "Failed to update.", 0.0, deployments)
    assert failure_line(status) == "Failed to update. ParameterError: dtype needs float32"

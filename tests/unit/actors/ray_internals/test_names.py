"""Each private part of Ray that is used is there, and is used in one place only; what a new Ray breaks is named."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.unit.virtual_clock import on_loop

ROOT = Path(__file__).parents[4]
INTERNALS = ROOT / "actors" / "ray_internals"
PACKAGES = ("outrider", "actors", "serve_app", "cluster", "edge", "lab")
NOT_PUBLIC = ("ray.core", "ray.serve.context", "ray.serve.generated")  # besides modules whose name begins with _
ROUTER = "ray.serve._private.request_router.request_router"
CLIENT = "ray.serve._private.client"
READS = "replies of untrusted drafters are not unpickled (actors/plain_handle.py)"
LOOPBACK = "the embedded cluster listens on loopback only (cluster/private_ray.py)"
PORTS = "replicas on a loopback node listen on loopback only (actors/ray_internals/serve.py)"
QUEUE = "a call that is meant for one coordinator reaches it (MatchingRouter)"
COUNTS = "the router counts the load of coordinators (serve_app/coordination/request_router.py)"
ROUTERS_STATE = ("_replica_id_set", "_pending_requests_to_fulfill")
FOLLOWS = "`outrider serve` and `deploy` follow the application (cluster/application.py)"


@dataclass(frozen=True)
class Used:
    """One name: how we call it, or which parameters Ray's own callers give to what we put in its place."""

    module: str
    name: str
    so_that: str
    passed: tuple[str, ...] | None = None  # positional ones by any name, keywords with "="; None: it is not called
    is_ours: bool = False  # we override or replace it: its parameters are just those ``passed``


USED = (
    Used("ray._private.worker", "global_worker", READS),
    Used("ray._private.worker", "Worker.get_serialization_context", READS, ("self",)),
    Used(
        "ray._private.serialization",
        "SerializationContext._deserialize_object",
        READS,
        ("self", "data", "metadata", "object_ref", "out_of_band_tensors"),
        is_ours=True,
    ),
    Used("ray._private.ray_constants", "OBJECT_METADATA_TYPE_RAW", READS),
    *(
        Used("ray.core.generated.common_pb2", f"ErrorType.{name}", READS)
        for name in ("Value", "ACTOR_DIED", "TASK_CANCELLED", "TASK_EXECUTION_EXCEPTION")
    ),
    Used("ray.actor", "ActorHandle._actor_id", READS),
    Used("ray._private.state", "actors", "the fleet sees drafters load (actors/fleet/drafter_actors.py)", ("id",)),
    Used("ray._private.services", "canonicalize_bootstrap_address", "`outrider deploy` finds a cluster", ("address",)),
    Used("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", LOOPBACK),
    Used("ray", "init", "sessions are in a folder that is its user's (cluster/local.py)", ("_temp_dir=",)),
    Used("ray._common.tls_utils", "add_port_to_grpc_server", PORTS, ("server", "address")),
    Used("ray.serve._private.replica", "add_port_to_grpc_server", PORTS, ("server", "address"), is_ours=True),
    Used("ray.serve._private.common", "RequestMetadata", QUEUE),
    Used("ray.serve._private.replica_result", "ReplicaResult", COUNTS),
    Used(
        ROUTER, "FIFOMixin._fulfill_next_pending_request", QUEUE, ("self", "replica", "request_metadata"), is_ours=True
    ),
    Used(ROUTER, "RequestRouter._fulfill_next_pending_request", QUEUE, ("self", "replica", "request_metadata")),
    Used(ROUTER, "RequestRouter._get_pending_request_matching_internal_request_id", QUEUE, ("self", "metadata")),
    Used(ROUTER, "RequestRouter.update_replicas", COUNTS, ("self", "replicas"), is_ours=True),
    Used(ROUTER, "RequestRouter.on_send_request", COUNTS, ("self", "replica_id"), is_ours=True),
    Used(
        ROUTER,
        "RequestRouter.on_request_completed",
        COUNTS,
        ("self", "replica_id", "internal_request_id"),
        is_ours=True,
    ),
    Used(
        ROUTER,
        "RequestRouter.on_request_routed",
        COUNTS,
        ("self", "pending_request", "replica_id", "result"),
        is_ours=True,
    ),
    Used(ROUTER, "RequestRouter.on_replica_actor_died", COUNTS, ("self", "replica_id"), is_ours=True),
    Used(ROUTER, "RequestRouter.replica_queue_len_cache", COUNTS),
    Used("ray.serve.context", "_get_global_client", FOLLOWS, ()),
    Used(CLIENT, "ServeControllerClient.wait_for_proxies_serving", FOLLOWS, ("self",)),
    Used(CLIENT, "ServeControllerClient.get_serve_details", FOLLOWS, ("self",)),
    Used(CLIENT, "ServeControllerClient.get_deployment_info", FOLLOWS, ("self", "deployment", "application")),
    Used(CLIENT, "ServeControllerClient.http_config", FOLLOWS),
    Used("ray.serve._private.deployment_info", "DeploymentInfo", FOLLOWS, ("deployment_config", "version=", "...")),
    Used("ray.serve", "Deployment.options", "only what changed is restarted", ("self", "version=", "_internal=")),
)


def fault(used: Used) -> str:
    """What is not as it is used; empty if all is."""
    try:
        module = import_module(used.module)
    except ImportError as error:
        return f"cannot import {used.module} ({error})"
    try:
        found: Any = attrgetter(used.name)(module)
    except AttributeError:
        return f"{used.module} has no {used.name}"
    if used.passed is None:
        return ""
    signature = inspect.signature(found)
    positional = [name for name in used.passed if not name.endswith(("=", "..."))]
    keywords = dict.fromkeys(name[:-1] for name in used.passed if name.endswith("="))
    bind = signature.bind_partial if "..." in used.passed else signature.bind
    try:
        bind(*positional, **keywords)
    except TypeError as error:
        return f"{used.module}.{used.name}{signature} is called with {', '.join(used.passed)} ({error})"
    if used.is_ours and (taken := len(signature.parameters)) != len(used.passed):
        return f"{used.module}.{used.name}{signature} has {taken} parameters; what we put there takes {used.passed}"
    return ""


@pytest.mark.parametrize("used", USED, ids=lambda used: f"{used.module}.{used.name}")
def test_ray_has_what_is_used_of_it(used: Used) -> None:
    found = fault(used)
    assert not found, f"Ray {ray.__version__}: {found}; without it this is no longer true: {used.so_that}"


def test_ray_init_takes_a_folder_though_its_signature_does_not_name_it() -> None:
    assert '"_temp_dir"' in inspect.getsource(ray.init), f"Ray {ray.__version__}: ray.init knows no _temp_dir"


@on_loop
async def test_a_router_has_the_state_that_is_used_of_it() -> None:
    # Here, so that names that are gone are told one by one before these imports fail.
    from ray.serve._private.common import DeploymentHandleSource, DeploymentID  # noqa: PLC0415

    from serve_app.coordination.request_router import PrefixRouter  # noqa: PLC0415

    make: Any = PrefixRouter
    router = make(DeploymentID("Coordinator", "outrider"), DeploymentHandleSource.REPLICA)
    for name in ROUTERS_STATE:
        assert hasattr(router, name), f"Ray {ray.__version__}: a RequestRouter has no {name}; it broke: {QUEUE}"
    assert router.replica_ids == set()


@pytest.mark.parametrize(
    ("used", "found"),
    [
        (Used("ray._private.nowhere", "x", ""), "cannot import ray._private.nowhere"),
        (Used("ray._private.state", "nothing", ""), "ray._private.state has no nothing"),
        (Used("ray._private.state", "actors", "", ("id", "of=")), "is called with id, of="),
        (Used("ray._private.state", "actors", "", ("id",), is_ours=True), "has 3 parameters"),
    ],
)
def test_a_new_ray_would_be_told_by_name(used: Used, found: str) -> None:
    assert found in fault(used)


def is_private(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "ray" and (any(part.startswith("_") for part in parts) or module.startswith(NOT_PUBLIC))


def imported(text: str) -> Iterator[str]:
    """Names of private parts of Ray that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if is_private(name.name))
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name for name in full if is_private(name))


def named(text: str) -> set[str]:
    """Attributes and keywords that a module uses, and methods that it defines, whose names begin with one ``_``."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.ClassDef(body=body):
                found |= {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_private_parts_of_ray_are_named_in_one_place() -> None:
    ours = set().union(*(named(file.read_text()) for file in INTERNALS.glob("*.py")))
    found = dict[str, set[str]]()
    for file in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = file.read_text()
        if file.parent != INTERNALS and (names := {*imported(text)} | named(text) & ours):
            found[str(file.relative_to(ROOT))] = names
    assert not found, "what is not public in Ray belongs into actors/ray_internals"


def test_all_that_is_used_is_checked() -> None:
    texts = [file.read_text() for file in INTERNALS.glob("*.py")]
    names = set().union(*map(named, texts), *({name.rpartition(".")[2] for name in imported(text)} for text in texts))
    checked = {part for used in USED for part in (*used.module.split("."), *used.name.split("."), *(used.passed or ()))}
    assert names <= {part.rstrip("=") for part in checked} | {*ROUTERS_STATE}


def test_each_way_to_a_private_part_is_seen() -> None:
    text = (
        "import ray._private.worker\nfrom ray import _private, get\nfrom ray.serve.context import _get_global_client\n"
    )
    assert [*imported(text)] == ["ray._private.worker", "ray._private", "ray.serve.context._get_global_client"]
    assert named("x._actor_id\nray.init(_temp_dir=1)\nclass A:\n    def _f(self): self.__g\n") == {
        *("_actor_id", "_temp_dir", "_f"),
    }

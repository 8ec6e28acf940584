"""What Ray's autoscaler does with a rented machine on which Ray has ended, as after a reboot."""

from typing import Any

from ray.autoscaler.v2.instance_manager.common import InstanceUtil
from ray.autoscaler.v2.instance_manager.instance_manager import InstanceManager
from ray.autoscaler.v2.instance_manager.instance_storage import InstanceStorage
from ray.autoscaler.v2.instance_manager.reconciler import Reconciler
from ray.autoscaler.v2.instance_manager.storage import InMemoryStorage
from ray.core.generated import instance_manager_pb2


def test_a_machine_whose_ray_has_ended_is_given_back() -> None:
    states: Any = instance_manager_pb2
    memory: Any = InMemoryStorage
    storage = InstanceStorage(cluster_id="outrider", storage=memory())
    machine = InstanceUtil.new_instance("1", "verifier", states.Instance.RAY_STOPPED)
    machine.cloud_instance_id = "i-1"
    storage.upsert_instance(machine)
    reconciler: Any = Reconciler
    reconciler._terminate_instances(InstanceManager(storage, []))  # noqa: SLF001 (the step that is meant)
    instances, _ = storage.get_instances()
    assert [one.status for one in instances.values()] == [states.Instance.TERMINATING]

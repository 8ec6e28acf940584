"""A drafter that is loaded, with all that runs around it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edge.device_host import DeviceHost
from edge.status import CountingDrafter, StatusLine, Verdicts
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.model import OnnxModel
from outrider.wire.replies import DrafterCard


@dataclass(frozen=True, slots=True)
class LoadedDrafter:
    host: DeviceHost
    card: DrafterCard
    engine: CountingDrafter
    verdicts: Verdicts
    status: StatusLine
    thread: ThreadPoolExecutor  # the engine's

    @classmethod
    async def load(cls, file: Path, sha256: str | None, threads: int, kv_budget_mib: int) -> "LoadedDrafter":
        """Load a drafter's file in a thread of its own.

        Raises:
            ModelUnavailableError: it is missing, damaged, or has another hash.
            ParameterError: the KV budget has no room for one text.
        """
        thread, verdicts = ThreadPoolExecutor(1, thread_name_prefix="engine"), Verdicts()

        def loaded() -> CountingDrafter:
            limits = EngineLimits(kv_budget_mib * 2**20)
            return CountingDrafter(OnnxModel(file, threads, sha256), limits, None, verdicts.note)

        try:
            engine = await asyncio.get_running_loop().run_in_executor(thread, loaded)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        card = DrafterCard(**vars(engine.identity))
        return cls(DeviceHost(engine, card, thread), card, engine, verdicts, StatusLine(card.name), thread)

    def line(self, generations: int, link: str) -> str:
        return self.status.line(self.engine, self.verdicts, generations, link)

    def end(self) -> None:
        self.thread.shutdown(wait=False, cancel_futures=True)

"""Training with weights, gradients and the optimizer's state cut across processes: FSDP2.

PyTorch's `fully_shard` does the sharding. transformers' own ways do not work here: accelerate
supports FSDP on accelerators only, and a model that transformers itself sharded cannot be resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.utils import SAFE_WEIGHTS_NAME

from mnemic.errors import UsageError
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.train import TextTrainer

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""Gathered by all processes, and kept by the first."""


def shard(model: MnemicForCausalLM, args: TrainingArguments) -> None:
    """Cut a model's parameters across all processes, in place, each along its first axis.

    A block's parameters are gathered when it runs and freed afterwards; those of the embedding, the
    last norm and the head stay gathered from the forward to the backward pass.

    Raises:
        UsageError: there is one process.
    """
    if args.world_size < 2:
        raise UsageError(
            "--shard: one process; start several: torchrun --nproc-per-node 2 -m mnemic train ..."
        )
    mesh = init_device_mesh(args.device.type, (args.world_size,))
    for block in model.model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


class ShardedTrainer(TextTrainer):
    """A trainer for a model sharded by `shard`; the first process writes unsharded checkpoints."""

    def create_accelerator_and_postprocess(self) -> None:
        """Make the accelerator, which puts no DDP around the model."""
        super().create_accelerator_and_postprocess()
        prepared = self.accelerator.prepare_model

        def prepare_model(model: nn.Module, **options: Any) -> nn.Module:
            found: nn.Module = prepared(model, **{**options, "evaluation_mode": True})
            return found

        self.accelerator.prepare_model = prepare_model

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Score the held-out documents; no weights stay gathered behind it."""
        found = super().evaluate(*args, **options)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return the whole weights, in the first process; all have to ask."""
        found: dict[str, Any] = get_model_state_dict(self.model, options=WHOLE)
        return self._tied(found) if found else {}

    def _tied(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return the weights with those that are one in the model as one tensor."""
        sources: dict[str, str] = self.model.all_tied_weights_keys
        return {**weights, **{name: weights[source] for name, source in sources.items()}}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the whole weights, as one process would."""
        self._save(output_dir, state_dict=self.weights())

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        told = get_optimizer_state_dict(self.model, self.optimizer.optimizer, options=WHOLE)
        if self.args.should_save:
            torch.save(told, Path(output_dir) / OPTIMIZER_NAME)
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        told = safetensors.torch.load_file(Path(resume_from_checkpoint) / SAFE_WEIGHTS_NAME)
        set_model_state_dict(self.model, self._tied(told), options=WHOLE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        told, schedule = (
            torch.load(Path(checkpoint) / name, map_location="cpu", weights_only=True)
            for name in (OPTIMIZER_NAME, SCHEDULER_NAME)
        )
        set_optimizer_state_dict(self.model, self.optimizer.optimizer, told, options=WHOLE)
        self.lr_scheduler.load_state_dict(schedule)

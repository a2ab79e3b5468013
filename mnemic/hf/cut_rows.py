"""Sequence parallelism: training on rows that are split evenly across processes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from mnemic.distributed import AlongSequence, shifted
from mnemic.errors import Issue, UsageError, format_issue
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.packing import together
from mnemic.hf.sharded import ShardedTrainer
from mnemic.hf.text_options import TextOptions
from mnemic.hf.train import TextTrainer


def cut_rows(model: MnemicForCausalLM, args: TrainingArguments, options: TextOptions) -> None:
    """Let a model run on parts of rows: memory states are passed along each line of processes.

    Processes 0 to n − 1 are the first line, and so on; the processes of a line share its rows.

    Raises:
        UsageError: the processes do not divide into lines, or the tokens of a row into parts.
    """
    count = options.sequence_parallel
    wrong = [
        Issue(f"needs a multiple of --sequence-parallel {count}", name, str(read))
        for name, read in (("torchrun's processes", args.world_size), ("--length", options.length))
        if read % count
    ]
    if wrong:
        raise UsageError("\n".join(map(format_issue, wrong)))
    mesh = init_device_mesh(
        args.device.type, (args.world_size // count, count), mesh_dim_names=("data", "sequence")
    )
    starts = Starts()
    model.model.register_forward_pre_hook(starts.read, with_kwargs=True)
    for block in model.model.layers:
        layer: Any = block.memory
        along = AlongSequence(layer, mesh.get_group("sequence"), call=layer.forward)
        layer.forward = partial(starts.run, along)


class Starts:
    """Which parts of rows begin with a document, whose first token has position 0."""

    def __init__(self) -> None:
        self.begin: Tensor | None = None

    def read(self, model: nn.Module, args: Any, told: dict[str, Any]) -> None:
        """Keep which rows begin with a document, as a call's positions tell; None without any."""
        position = told.get("position_ids")
        self.begin = None if position is None else position[:, 0] == 0

    def run(self, along: AlongSequence, x: Tensor, **told: Any) -> Tensor:
        """Run a memory on [B, T, dim], or on rows one after another with their documents' ends."""
        ends = told.pop("cu_seqlens", None)
        if self.begin is None or told.pop("mask", None) is not None or told:
            raise ValueError("rows that are cut have position_ids, no padding and no cache")
        rows = x if ends is None else x.view(len(self.begin), -1, x.shape[2])
        begins = torch.zeros(rows.shape[:2], dtype=torch.bool, device=x.device)
        if ends is not None:
            begins.view(-1)[ends[:-1]] = True
        begins[:, 0] = self.begin
        y: Tensor = along(rows, begins=begins)
        return y.view_as(x)


def own_part(rows: list[dict[str, Tensor]], index: int, count: int) -> dict[str, Tensor]:
    """Return a part of rows as one batch; labels are shifted before rows are split."""
    batch = together(rows)
    batch["shift_labels"] = shifted(batch["labels"])
    return {name: x.chunk(count, 1)[index] for name, x in batch.items()}


class CutTrainer(TextTrainer):
    """A trainer for a model prepared by `cut_rows`: all processes of a line read the same rows."""

    processes: int
    """Of a line."""

    @property
    def share(self) -> tuple[int, int]:
        """The number of this process's line, and how many lines there are."""
        return self.args.process_index // self.processes, self.args.world_size // self.processes

    def read_parts(self, processes: int) -> None:
        """Read parts of rows from now on."""
        self.processes = processes
        index = self.args.process_index % processes
        self.data_collator = partial(own_part, index=index, count=processes)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the rows of this line."""
        found = super().get_train_dataloader()
        rows = found.batch_sampler  # accelerate's, of every process its own
        rows.process_index, rows.num_processes = self.share
        return found


class ShardedCutTrainer(CutTrainer, ShardedTrainer):
    """A trainer whose lines of processes share rows, and all processes the weights."""

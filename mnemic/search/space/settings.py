"""What a space says beside the spec with choices in it: its entry ``search``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticKnownError

from mnemic.dsl.axis import Entry

SAMPLERS: Final = ("tpe", "gp", "nsga2", "nsga3", "random", "grid")
COSTS: Final = ("parameters", "state_bytes", "flops", "training_flops", "step_seconds")
"""What is less the better, measured of every point."""

FREE: Final = {"sampler", "seed", "trials", "start", "limits", "confirm", "device", "compile"}
"""Settings under which what was found before still counts."""

Option = bool | int | float | str


def _rung(data: Any) -> Any:
    return {"rung": data} if isinstance(data, str) else data


def _pairs(data: Any) -> Any:
    return tuple(data) if isinstance(data, list) else data


class TaskEntry(Entry):
    """How hard a task is: a rung of it, and options that differ from the rung's."""

    rung: str | None = None
    options: dict[str, Option] = Field(default_factory=dict)


class Model(Entry):
    """The language model around the layers."""

    dim: int = Field(default=64, ge=1)
    layers: int = Field(default=2, ge=1)


class Training(Entry):
    """AdamW on batches, as `mnemic.models.train_options.TrainOptions` has it."""

    batch: int = Field(default=32, ge=1)
    lr: float = Field(default=3e-3, gt=0)
    warmup: int = Field(default=20, ge=0)
    weight_decay: float = Field(default=0.1, ge=0)
    eval_size: int = Field(default=256, ge=1, description="held-out sequences of an evaluation")


class Rung(Entry):
    """One rung of successive halving; ``keep`` is the share that goes on to the next.

    Either ``untrained``, a task of the memory alone whose regression error decides, without any
    training; or ``steps`` of training on every task, with ``seeds`` seeds.
    """

    untrained: str | None = Field(default=None, description="a task of the memory alone")
    rung: str | None = Field(default=None, description="of the untrained task")
    draws: int = Field(default=12, ge=1, description="constants tried for each coefficient")
    steps: int | None = Field(default=None, ge=1)
    seeds: int = Field(default=1, ge=1, le=64)
    sizes: dict[str, str] = Field(
        default_factory=dict, description="rungs of tasks that differ from those of 'tasks'"
    )
    keep: float = Field(default=1 / 3, gt=0, le=1)

    @model_validator(mode="after")
    def _one_kind(self) -> Rung:
        if (self.untrained is None) == (self.steps is None):
            raise ValueError("give 'untrained', a task, or 'steps' of training")
        return self


class Limits(Entry):
    """What one trial may take, in a process of its own."""

    seconds: float = Field(default=1800.0, gt=0, description="of wall time, all rungs together")
    memory: float = Field(default=4.0, gt=0, description="GiB beyond the program's own")


class Confirm(Entry):
    """After the search: the best points trained again with seeds that it never used."""

    best: int = Field(default=3, ge=0)
    seeds: int = Field(default=5, ge=2, le=64)
    early: int | None = Field(
        default=None, ge=2, description="seeds after which a spec to compare with that is below "
        "the best point found with 97.5 % confidence is trained no further",
    )  # fmt: skip
    against: Annotated[tuple[str, ...], BeforeValidator(_pairs)] = Field(
        default=(), description="specs by name or path; all: packaged ones within the budget"
    )
    longer: int | None = Field(default=None, ge=2, description="once more with as many times the "
                               "last rung's steps")  # fmt: skip
    wider: int | None = Field(default=None, ge=2, description="once more with as many times the "
                              "model's dim")  # fmt: skip

    @model_validator(mode="after")
    def _looks_twice(self) -> Confirm:
        if self.early is not None and self.early >= self.seeds:
            raise ValueError(f"'early' must be fewer than 'seeds', {self.seeds}")
        return self


def _bound(data: Any, read: Callable[[Any], float | str]) -> float | str:
    """Read a bound; say in one message what it may be."""
    with suppress(ValidationError):
        bound = read(data)
        if bound.is_integer() if isinstance(bound, float) else float(bound.removesuffix("x")) > 0:
            return bound
    raise ValueError("must be a whole number above 0, or a multiple of the reference's, as 1.1x")


RUNGS: Final = (
    Rung(untrained="switching", rung="small", keep=0.5),
    Rung(steps=100),
    Rung(steps=300),
    Rung(steps=300, seeds=3),
)

Rate = Annotated[float, Field(gt=0, le=1)]
Bound = Annotated[
    Annotated[float, Field(gt=0)] | Annotated[str, Field(pattern=r"^\d+(\.\d+)?x$")],
    WrapValidator(_bound),
]
Task = Annotated[TaskEntry, BeforeValidator(_rung, json_schema_input_type=str | TaskEntry)]


class Constraints(Entry):
    """Upper bounds; ``1.1x`` is 1.1 times what the reference has."""

    parameters: Bound | None = None
    state_bytes: Bound | None = None
    flops: Bound | None = None
    training_flops: Bound | None = None


EQUAL: Final = {"parameters": "1.1x", "state_bytes": "1.1x"}


def _equal(data: Any) -> Any:
    if isinstance(data, str) and data not in ("equal", "none"):
        raise PydanticKnownError("literal_error", {"expected": "'equal' or 'none'"})
    return EQUAL if data == "equal" else {} if data == "none" else data


class Settings(Entry):
    """Tasks, objectives, constraints and budget of a search."""

    tasks: dict[str, Task] = Field(min_length=1, description="what to learn, each at a rung")
    objectives: Annotated[tuple[str, ...], BeforeValidator(_pairs)] = Field(
        default=("mean",), min_length=1,
        description="mean (of skills over tasks), a task, or a cost: " + ", ".join(COSTS),
    )  # fmt: skip
    constraints: Annotated[
        Constraints,
        BeforeValidator(_equal, json_schema_input_type=Literal["equal", "none"] | Constraints),
    ] = Constraints(**EQUAL)
    reference: str = Field(
        default="gated-deltanet", description="the spec whose budget others must keep to"
    )
    model: Model = Model()
    training: Training = Training()
    rungs: Annotated[tuple[Rung, ...], BeforeValidator(_pairs)] = Field(
        default=RUNGS, min_length=1, description="successive halving, from cheap to dear"
    )
    sampler: Literal["tpe", "gp", "nsga2", "nsga3", "random", "grid"] = "tpe"
    seed: int = Field(default=0, ge=0, description="of the sampler")
    trials: int = Field(default=100, ge=1, description="points to look at, duplicates not counted")
    start: Annotated[tuple[str, ...], BeforeValidator(_pairs)] = Field(
        default=("all",), description="specs to begin with, by name or path; all packaged ones"
    )
    limits: Limits = Limits()
    device: str = Field(
        default="cpu", min_length=1, description="that trains, as torch names it: cpu, cuda, cuda:1"
    )
    compile: bool = Field(
        default=False, description="whether steps of training run under torch.compile"
    )
    confirm: Confirm = Confirm()
    rates: Annotated[tuple[Rate, ...], BeforeValidator(_pairs)] = Field(
        default=(), description="learning rates that a leaderboard tries for each spec, in place "
        "of training's lr",
    )  # fmt: skip

    @model_validator(mode="after")
    def _trains(self) -> Settings:
        if self.rungs[-1].steps is None:
            raise ValueError("the last rung must train: give it 'steps'")
        if any(rung.untrained is not None for rung in self.rungs[1:]):
            raise ValueError("only the first rung can be untrained")
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that earlier results depend on, as plain data.

        What a later release added is left out where it is not used, so that studies and
        leaderboards of earlier ones go on.
        """
        data: dict[str, Any] = self.model_dump(mode="json", exclude=FREE)
        if not data["rates"]:
            del data["rates"]
        if data["constraints"]["training_flops"] is None:
            del data["constraints"]["training_flops"]
        return data


class SpaceEntry(Entry):
    """The part of a space beside its spec: the entry ``search``."""

    search: Settings

"""An equation as a paper prints it, the problem that the paper states, and a correction."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Shape = Literal["scalar", "key", "value", "memory", "square", "keys", "values", "mixed", "hidden",
                "inner", "outer", "row", "tokens"]  # fmt: skip
Domain = Literal["any", "positive", "unit", "simplex", "above one", "symmetric", "definite",
                 "strictly lower"]  # fmt: skip


class _Closed(BaseModel):
    """A mapping of a paper's file: frozen, with no keys but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Equation(_Closed):
    """One line or one table cell of a paper.

    ``rule`` is the line as printed, in the grammar of `mnemic.compiler.published`; ``problem`` is
    what the paper says that it solves, in the same grammar with ``gradient`` and ``argmin``. A line
    that is no rule has ``no_rule``, what it is; one that cannot be judged has ``unjudged``, why.
    """

    number: Annotated[tuple[int, ...], Field(strict=False)] = Field(
        default=(), description="the numbers that the paper gives the line"
    )
    where: str = Field(description="where in the paper it stands")
    printed: str | None = Field(default=None, description="the line as the paper sets it")
    rule: str | None = Field(default=None, description="the line, in the matrix grammar")
    problem: str | None = Field(default=None, description="the problem, as the paper states it")
    stated: str | None = Field(default=None, description="where the paper states the problem")
    corrected: str | None = Field(default=None, description="the line as it should stand")
    slip: str | None = Field(
        default=None, description="a slip of notation, and the reading that was judged"
    )
    note: str | None = Field(default=None, description="what a reader should know")
    shapes: dict[str, Shape] = Field(default={}, description="shapes that names do not tell")
    domains: dict[str, Domain] = Field(default={}, description="where values are drawn from")
    fixed: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="numbers that are no coefficients: an exponent, a count"
    )
    values: dict[str, float] = Field(default={}, description="the value that a fixed number has")
    specs: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="the packaged specs that this line is about"
    )
    no_rule: str | None = Field(default=None, description="what the line is, if it is no rule")
    unjudged: str | None = Field(default=None, description="why the line cannot be judged")

    @model_validator(mode="after")
    def _whole(self) -> "Equation":
        judged = self.rule is not None and self.problem is not None
        if judged + (self.no_rule is not None) + (self.unjudged is not None) != 1:
            raise ValueError("give rule and problem, or no_rule, or unjudged")
        if not judged and self.corrected is not None:
            raise ValueError("a correction needs a rule and a problem")
        return self


class Paper(_Closed):
    """A paper's equations, and how many it numbers."""

    id: str = Field(description="the word for it on the command line")
    title: str = Field(description="authors, year, title")
    numbered: int = Field(description="the largest number of an equation")
    missing: Annotated[tuple[int, ...], Field(strict=False)] = Field(
        default=(), description="numbers that the text at hand does not show"
    )
    equations: Annotated[tuple[Equation, ...], Field(strict=False)] = Field(
        description="its equations in order"
    )

    @property
    def covered(self) -> frozenset[int]:
        """The numbers that have an entry."""
        return frozenset(number for e in self.equations for number in e.number)

    @property
    def uncovered(self) -> tuple[int, ...]:
        """The numbers that have none."""
        every = set(range(1, self.numbered + 1))
        return tuple(sorted(every - self.covered))

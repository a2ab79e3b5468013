"""What a plan has no adjoint for."""

from mnemic.codegen.operations import operation


class NoAdjoint(Exception):
    """A function of the support module without a rule: the form is forward only."""

    def __init__(self, function: str) -> None:
        super().__init__(f"no rule for the gradient of {operation(function)}")
        self.function = function

"""What a plan has no adjoint for."""


class NoAdjoint(Exception):
    """A function of the support module without a rule: the form is forward only."""

    def __init__(self, function: str) -> None:
        super().__init__(f"no rule for the gradient of {function}")
        self.function = function

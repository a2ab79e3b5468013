"""Methods that read numbers on the host: torch.compile breaks the graph at each of them."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch._compile import _disable_dynamo

from .arguments import fail

Method = TypeVar("Method", bound=Callable[..., Any])


def outside_graphs(reason: str) -> Callable[[Method], Method]:
    """Decorate a method that reads numbers on the host, with the reason why it must.

    Under torch.compile the graph breaks there once, with the reason, and the method runs eagerly;
    ``fullgraph=True`` fails with the reason. torch.export cannot break a graph: there the call is
    refused. The method's object has the ``signature`` of its rule.

    Raises:
        ArgumentError: under torch.export.
    """

    def decorated(method: Method) -> Method:
        # torch.compiler.disable, which would import the compiler where none is at work
        apart: Any = _disable_dynamo(method)
        apart._torchdynamo_disable = True
        apart._torchdynamo_disable_msg = reason

        @wraps(method)
        def chosen(owner: Any, *args: Any, **options: Any) -> Any:
            if not torch.compiler.is_compiling():
                return method(owner, *args, **options)
            if torch.compiler.is_exporting():
                raise fail(owner.signature, f"torch.export: {reason}")
            return apart(owner, *args, **options)

        return chosen  # type: ignore[return-value]

    return decorated

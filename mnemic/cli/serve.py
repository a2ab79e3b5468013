"""``mnemic serve``: a saved model behind HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from mnemic.cli.arguments import DeviceOption
from mnemic.cli.model import require
from mnemic.cli.output import echo
from mnemic.errors import EnvironmentFailed

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A model's folder, with a tokenizer.")]
Host = Annotated[str, typer.Option(help="Address to listen at.")]
Port = Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)]
Rows = Annotated[int, typer.Option(help="Requests worked on at once.", min=1)]


def serve(
    folder: Folder,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    rows: Rows = 16,
    device: DeviceOption = "cpu",
) -> None:
    """Serve a model's completions with OpenAI's interface, until Ctrl-C.

    GET /v1/models, POST /v1/completions (prompt, max_tokens, temperature, top_p, seed, stop,
    stream). Requests are batched token by token; each gets what it would get alone. There is no
    authentication: listen at an address that only those who may use it can reach.
    """
    require()
    from mnemic.hf.batching import Batcher
    from mnemic.hf.folder import load
    from mnemic.hf.serve import Server
    from mnemic.hf.tokenizer import load_tokenizer
    from mnemic.models.device import demand_device

    model = load(folder).eval()
    tokenizer = load_tokenizer(folder)
    model.to(demand_device(device))
    batcher = Batcher(model, rows)
    try:
        server = Server((host, port), folder.resolve().name, batcher, tokenizer)
    except OSError as error:
        batcher.close()
        raise EnvironmentFailed(f"cannot listen at {host}:{port}: {error.strerror}") from None
    with server:
        echo(f"http://{host}:{server.server_port}/v1/completions  (Ctrl-C ends)")
        try:
            server.serve_forever()
        finally:
            server.end()

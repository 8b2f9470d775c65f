"""Options that several commands take. Declarations only."""

from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(metavar="demo|demo-tuned|DIR|REPO", help="The model; default: your settings."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Adapter = Annotated[str | None, typer.Option(metavar="DIR", help="An adapter to put onto it.")]
ResidualMap = Annotated[
    str | None, typer.Option(metavar="FILE", help="Says which tensors are the residual adapter.")
]
Spill = Annotated[bool, typer.Option("--allow-spill", help="Load although memory looks too short.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Preset = Annotated[str | None, typer.Option(metavar="speed|quality|careful", help="Thresholds.")]
Activations = Annotated[
    str, typer.Option(metavar="auto|bf16|nvfp4", help="Activations of NVFP4 weights.")
]
Kernels = Annotated[str, typer.Option(metavar="triton|reference", help="On a card: which ones.")]
Graph = Annotated[
    bool, typer.Option("--graph/--no-graph", help="On a card: an answer as one CUDA graph.")
]
Ahead = Annotated[
    bool, typer.Option("--ahead", help="In that graph: launch each kernel before the last is done.")
]

"""Every kernel at LLaDA2.1-mini's shapes, compiled for every card the engine supports: no spills,
no stack, no more shared memory than the card gives, and the matrix instructions that were meant."""

import re
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import pytest

from engine.machine.memory_plan import MINI

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs triton"),
    pytest.mark.slow,
]

ARCHITECTURES = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
NATIVE = ["sm_100", "sm_120"]
TRADED = 16
"""Bytes of spills a thread that do not count: the assembler gives up a register or two to let one
program more onto a processor, in another kernel with each version (see benchmarks/README.md)."""
SMALL = {
    "norm", "qkv", "attention", "router", "scan",
    "scan_combine", "cut", "draw", "draw_combine", "soft_sums", "soft_mix", "soft_add",
    "soft_list", "soft_gather", "decide", "advance", "embed", "activate", "add_scaled",
}  # fmt: skip


@cache
def compiled(arch: str, rounded: bool, packed: bool, tokens: int = 32):
    """(name, figures) of the distinct kernels of a step of LLaDA2.1-mini."""
    from engine.decode.step import Step, step_kernels
    from engine.kernels.offline import ARCHITECTURES, compile_distinct

    step = Step(
        MINI, ARCHITECTURES[arch], tokens, distinct=163, rounded=rounded,
        packed_linears=packed, packed_head=packed, packed_experts=packed,
    )  # fmt: skip
    kernels = step_kernels(step)
    return list(
        zip(
            (kernel.name for kernel in kernels),
            compile_distinct((kernel.launch for kernel in kernels), arch),
            strict=True,
        )
    )


def assert_fits(arch: str, kernels: list) -> None:
    from engine.kernels.offline import SHARED_LIMIT

    assert {name: c for name, c in kernels if max(c.spills, c.stack) > TRADED} == {}
    assert {name: c for name, c in kernels if c.shared > SHARED_LIMIT[arch]} == {}


@pytest.mark.parametrize("packed", [False, True], ids=["bf16", "w4a16"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile_without_spills(arch: str, packed: bool) -> None:
    kernels = compiled(arch, False, packed)
    assert_fits(arch, kernels)
    products = {name: c.instruction for name, c in kernels if "linear" in name or "_up" in name}
    assert all("mma" in instruction for instruction in products.values()), products
    assert all("bf16" in instruction or "f16" in instruction for instruction in products.values())


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_prefills_experts_fit_too(arch: str) -> None:
    """More rows a program, and so more registers."""
    from engine.decode.step import Step, step_kernels
    from engine.kernels.offline import ARCHITECTURES, compile_distinct

    step = Step(MINI, ARCHITECTURES[arch], 512, distinct=256, rounded=False)
    launches = [k.launch for k in step_kernels(step) if k.name.startswith("expert")]
    figures = compile_distinct(launches, arch)
    assert_fits(arch, list(zip((one.name for one in launches), figures, strict=True)))


@pytest.mark.parametrize("arch", NATIVE)
def test_fp4_units_multiply_w4a4(arch: str) -> None:
    kernels = compiled(arch, True, True)
    assert_fits(arch, kernels)
    experts = [c.instruction for name, c in kernels if name.startswith(("expert_gate", "expert_d"))]
    assert len(experts) == 2
    assert all("mxf4nvf4" in instruction for instruction in experts)


@pytest.mark.parametrize("rounded", [False, True], ids=["w4a16", "w4a4"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_plain_shared_expert_fits_into_the_packed_ones_kernels(arch: str, rounded: bool) -> None:
    """Where only the routed experts are NVFP4: still eight launches a layer, with both products."""
    from engine.decode.step import Step, step_kernels
    from engine.kernels.offline import ARCHITECTURES, compile_distinct

    step = Step(
        MINI, ARCHITECTURES[arch], 32, distinct=163, rounded=rounded, packed_linears=False
    )  # fmt: skip
    listed = [kernel for kernel in step_kernels(step) if kernel.part == "expert layer"]
    assert sum(kernel.count for kernel in listed) == 8 * 19
    experts = [kernel for kernel in listed if kernel.name.startswith(("expert_gate", "expert_d"))]
    figures = compile_distinct((kernel.launch for kernel in experts), arch)
    assert_fits(arch, [(kernel.name, one) for kernel, one in zip(experts, figures, strict=True)])
    native = rounded and arch in NATIVE
    assert len(figures) == 2
    assert all(("mxf4nvf4" in one.instruction) == native for one in figures)
    assert all("f16" in one.instruction for one in figures)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_w4a4_is_computed_on_decoded_weights_elsewhere(arch: str) -> None:
    kernels = compiled(arch, True, True)
    assert_fits(arch, kernels)
    assert not any("mxf4" in c.instruction for _, c in kernels)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_small_kernels_fit_too(arch: str) -> None:
    from engine.kernels.offline import compile_distinct
    from tests.triton.launches import others, step

    launches = [*step(32), *step(64), *others()]
    kernels = list(
        zip((one.name for one in launches), compile_distinct(launches, arch), strict=True)
    )
    assert_fits(arch, kernels)
    assert {name for name, _ in kernels} == SMALL
    products = {name for name, figures in kernels if figures.instruction}
    assert {"attention", "soft_mix"} <= products  # on the matrix units, whatever they are called


@pytest.mark.parametrize(
    ("rounded", "packed", "tokens"), [(False, False, 32), (False, True, 64), (True, True, 32)]
)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_expert_layer_is_eight_launches(
    arch: str, rounded: bool, packed: bool, tokens: int
) -> None:
    from engine.decode.step import Step, step_kernels
    from engine.kernels.offline import ARCHITECTURES

    step = Step(
        MINI, ARCHITECTURES[arch], tokens, distinct=163, rounded=rounded, packed_linears=packed,
        packed_experts=packed,
    )  # fmt: skip
    listed = [kernel for kernel in step_kernels(step) if kernel.part == "expert layer"]
    assert sum(kernel.count for kernel in listed) == 8 * 19


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_every_kernel_waits_before_it_touches_memory(arch: str) -> None:
    """So it may be launched while those before it are running; until then it only asks for weights.
    It waits in its first basic block, which every thread of every program goes through."""
    from engine.decode.step import Step, step_kernels
    from engine.kernels.offline import ARCHITECTURES, compile_ptx
    from tests.triton.launches import others, step

    launches = [*step(32), *others()]
    for rounded, packed in ((False, True), (True, True), (False, False)):
        whole = Step(
            MINI, ARCHITECTURES[arch], 32, distinct=163, rounded=rounded, packed_linears=packed,
            packed_head=packed, packed_experts=packed,
        )  # fmt: skip
        launches += [kernel.launch for kernel in step_kernels(whole)]
    moves = re.compile(r"\b(?:ld|st|atom|red|cp)\.(?!param|shared)|\bbra\b|ret\b|\$L__BB")
    asking = set()
    plain, _ = compile_ptx(launches[0], arch)
    assert "griddepcontrol" not in plain
    for launch in launches:
        ptx, _ = compile_ptx(replace(launch, ahead=True), arch)
        assert ptx.count("griddepcontrol.wait") == 1, launch.name
        before = ptx[ptx.index(".reqntid") :].partition("griddepcontrol.wait")[0]
        assert not moves.search(before), launch.name
        if "prefetch.global.L2" in before:
            asking.add(launch.kernel.fn.__name__)
    assert asking == {"linear_kernel", "split_linear_kernel", "router_kernel", "mix_kernel"}


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_the_last_program_sees_what_the_others_wrote(arch: str) -> None:
    """Around each counting of programs: all threads' stores, a barrier, one addition that releases
    and acquires, a barrier, and only then loads, none of which may come from a read-only cache."""
    from engine.decode.step import Step, step_kernels
    from engine.kernels.offline import ARCHITECTURES, compile_ptx

    step = Step(MINI, ARCHITECTURES[arch], 32, distinct=163, rounded=False)
    counting = {}
    for kernel in step_kernels(step):
        if kernel.part == "expert layer" and "counters" in kernel.launch.arguments:
            ptx, _ = compile_ptx(kernel.launch, arch)
            words = r"(bar\.sync|atom\.[\w.]+|(?:ld|st)\.global[\w.]*|cp\.async\.c[\w.]*)"
            counting[kernel.name] = re.findall(words, ptx)
    assert set(counting) == {"qkv_linear_w4a16_split", "attention", "router"}
    for name, words in counting.items():
        found = [i for i, word in enumerate(words) if word.startswith("atom")]
        assert len(found) == (2 if name == "router" else 1), name
        for i in found:
            assert words[i] == "atom.global.gpu.acq_rel.add.u32"
            assert words[i - 1] == words[i + 1] == "bar.sync"
        assert not [word for word in words if ".nc" in word]

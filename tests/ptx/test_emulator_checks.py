"""What the emulator must complain of, and what it must not: races within a program and between
programs, addresses, instructions that it does not know; and lanes that part and meet again."""

import re

import pytest
import torch

from tests.ptx.assembly import integers, kernel, lanewise, launch
from tests.ptx.library import Refused, can_build

# Slow is only building it, which would not be worth it beside the fast tests.
pytestmark = [
    pytest.mark.skipif(not can_build(), reason="needs g++"),
    pytest.mark.slow,
]

SEEDS = range(4)  # whichever warp or program comes first

# Warp 0 stores its lanes' numbers, warp 1 loads them and stores them again at %d0.
HAND_OVER = """
and.b32 %r0, %tid, 31;
setp.lt.u32 %p0, %tid, 32;
{address}
@%p0 st.{space}.b32 [{place}], %r0;
{barrier}
@!%p0 ld.{space}.b32 %r2, [{place}];
mad.wide.u32 %d8, %r0, 4, %d0;
@!%p0 st.global.b32 [%d8], %r2;
"""
SHARED = {"space": "shared", "place": "%r1", "address": "mul.lo.u32 %r1, %r0, 4;"}
GLOBAL = {"space": "global", "place": "%d9", "address": "mad.wide.u32 %d9, %r0, 4, %d1;"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("where", [SHARED, GLOBAL], ids=["shared", "global"])
def test_what_one_warp_stores_and_another_loads_needs_a_barrier(
    where: dict[str, str], seed: int
) -> None:
    found, between = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    with_barrier = HAND_OVER.format(**where, barrier="bar.sync 0;")
    launch(with_barrier, found, between, warps=2, seed=seed)
    assert found.tolist() == list(range(32))
    with pytest.raises(Refused, match=rf"race: .*\b(st|ld)\.{where['space']}\.b32"):
        launch(HAND_OVER.format(**where, barrier=""), found, between, warps=2, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_warps_store_to_one_place(seed: int) -> None:
    body = "shr.u32 %r0, %tid, 5; mov.b32 %r1, 0; st.shared.b32 [%r1], {};"
    with pytest.raises(Refused, match="stores of two warps"):
        launch(body.format("%r0"), warps=2, seed=seed)
    launch(body.format("7"), warps=2, seed=seed)  # the same number: in any order the same


def test_nothing_is_touched_ahead_of_what_a_kernel_depends_on() -> None:
    wait, touch = "griddepcontrol.wait;", "mov.b32 %r0, 7; st.global.b32 [%d0], %r0;"
    ahead = "griddepcontrol.launch_dependents; prefetch.global.L2 [%d0];"
    found = torch.zeros(1, dtype=torch.int32)
    launch(ahead + wait + touch, found)
    assert found.item() == 7
    with pytest.raises(Refused, match=r"ahead of .*st\.global\.b32"):
        launch(touch + wait, found)
    with pytest.raises(Refused, match=r"ends without griddepcontrol\.wait"):
        launch("setp.eq.u32 %p0, %program, 0; @%p0 ret;" + wait, found, programs=2)
    with pytest.raises(Refused, match="outside of every tensor"):
        launch("add.u64 %d1, %d0, 128; prefetch.global.L2 [%d1];", found)


@pytest.mark.parametrize("early", SEEDS)
def test_a_copy_is_there_once_it_is_waited_for(early: int) -> None:
    body = """
    mul.lo.u32 %r0, %tid, 4;
    mad.wide.u32 %d8, %tid, 4, %d0;
    mad.wide.u32 %d9, %tid, 4, %d1;
    cp.async.ca.shared.global [%r0], [%d8], 4;
    cp.async.commit_group;
    {}
    ld.shared.b32 %r1, [%r0];
    st.global.b32 [%d9], %r1;
    """
    source, found = torch.arange(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    launch(body.format("cp.async.wait_group 0;"), source, found, seed=early)
    assert torch.equal(found, source)
    launch(body.format(""), source, found, seed=early)
    # Not waited for, it may be there (as often as not) or the memory still be garbage.
    assert found.tolist() in (source.tolist(), [-1] * 32)


# Every program stores its number + 1; the one that is counted last adds all of them up.
LAST = """
mad.wide.u32 %d8, %program, 4, %d1;
setp.eq.u32 %p0, %tid, 0;
add.u32 %r0, %program, 1;
@%p0 st.global.b32 [%d8], %r0;
bar.sync 0;
@%p0 atom.global.gpu.{order}.add.u32 %r1, [%d2], 1;
mov.b32 %r2, 0;
@%p0 st.shared.b32 [%r2], %r1;
bar.sync 0;
ld.shared.b32 %r1, [%r2];
setp.ne.u32 %p1, %r1, 3;
@%p1 bra END;
ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d1];
add.u32 %r4, %r4, %r5;
add.u32 %r6, %r6, %r7;
add.u32 %r4, %r4, %r6;
@%p0 st.global.b32 [%d0], %r4;
END:
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_program_needs_an_atomic_that_releases_and_acquires(seed: int) -> None:
    def run(order: str) -> int:
        total, parts, counter = (torch.zeros(n, dtype=torch.int32) for n in (1, 4, 1))
        launch(LAST.format(order=order), total, parts, counter, programs=4, warps=2, seed=seed)
        return int(total)

    assert run("acq_rel") == 10
    for order in ("relaxed", "acquire", "release"):
        with pytest.raises(Refused, match="a load of what another program stored: ld"):
            run(order)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_program_needs_a_barrier_before_it_counts(seed: int) -> None:
    total, parts, counter = (torch.zeros(n, dtype=torch.int32) for n in (1, 4, 1))
    body = LAST.format(order="acq_rel").replace("bar.sync 0;", "", 1)
    with pytest.raises(Refused, match="another program stored"):
        launch(body, total, parts, counter, programs=4, warps=2, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_program_may_not_store_what_another_loads(seed: int) -> None:
    body = """
    ld.global.b32 %r0, [%d0];
    setp.eq.u32 %p0, %program, 1;
    @%p0 st.global.b32 [%d0], 5;
    """
    for programs in (2, 4):
        with pytest.raises(Refused, match=r"another program (loaded|stored)"):
            launch(body, torch.zeros(1, dtype=torch.int32), programs=programs, seed=seed)


@pytest.mark.parametrize(
    ("access", "complaint"),
    [
        ("ld.global.b32 %r0, [%d0 + 2];", "misaligned address .* of 4 bytes"),
        ("ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d0 + 8];", "misaligned address .* of 16 bytes"),
        ("ld.global.b32 %r0, [%d0 + 64];", "outside of every tensor"),
        ("st.global.b32 [%d0 + -4], %r0;", "outside of every tensor"),
        ("atom.global.add.u32 %r0, [%d0 + 64], 1;", "outside of every tensor"),
        ("mov.b32 %r1, 2; ld.shared.b32 %r0, [%r1];", "misaligned shared address"),
        ("mov.b32 %r1, 1024; st.shared.b32 [%r1], %r0;", "beyond the end of shared memory"),
        (
            "mov.b32 %r1, 0; cp.async.cg.shared.global [%r1], [%d0 + 4], 16;\n"
            "cp.async.commit_group; cp.async.wait_group 0;", "misaligned address",
        ),
    ],
)  # fmt: skip
def test_addresses(access: str, complaint: str) -> None:
    instruction = re.escape(access.split(";")[-2 if "cp" not in access else 1].strip())
    pattern = rf"program \(0, 0, 0\): {complaint}.*: {instruction}"
    with pytest.raises(Refused, match=pattern):
        launch(access, torch.zeros(16, dtype=torch.int32))


def test_what_is_not_read_need_not_be_there() -> None:
    body = "mov.b32 %r0, 0; cp.async.cg.shared.global [%r0], [%d0 + 4096], 16, %r0;"
    launch(body + "cp.async.commit_group; cp.async.wait_group 0;", torch.zeros(4))


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.init.shared.b64 [%r0], 1;", "add.cc.u32 %r0, %r1, %r2;",
        "add.sat.s32 %r0, %r1, %r2;", "add.rz.f32 %r0, %r1, %r2;", "fence.acq_rel.gpu;",
        "ld.acquire.gpu.global.b32 %r0, [%d0];", "cvt.rn.f16x2.e4m3x2 %r0, %h0;",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r0}, {%r1}, {%r2}, {%r3};",
    ],
)  # fmt: skip
def test_an_instruction_that_is_not_known_is_named(text: str) -> None:
    with pytest.raises(Refused, match=re.escape("not known to the emulator: " + text.rstrip(";"))):
        kernel(text, 1)


def test_names_must_be_declared() -> None:
    with pytest.raises(Refused, match="%clock"):
        kernel("mov.b32 %r0, %clock;", 0)
    with pytest.raises(Refused, match="a label that is not there: bra NOWHERE"):
        kernel("bra NOWHERE;", 0)


def test_registers_are_garbage_until_they_are_written() -> None:
    assert lanewise("mov.b32 %out, %r63;", integers([0])).item() not in (0, 1)


PARTING = """
and.b32 %r0, %tid, 1;
setp.eq.u32 %p0, %r0, 1;
@%p0 bra ODD;
mov.b32 %r1, 20;
bra.uni MEET;
ODD:
mov.b32 %r1, 10;
MEET:
shfl.sync.bfly.b32 %out, %r1, 1, 31, -1;
"""


def test_branches_that_part_meet_again() -> None:
    found = lanewise(PARTING, integers(range(32)))
    assert found.tolist() == [10, 20] * 16


def test_lanes_leave_a_loop_one_after_another() -> None:
    body = """
    mov.b32 %r1, 0;
    mov.b32 %r2, 0;
    LOOP:
    setp.ge.u32 %p0, %r1, %a;
    @%p0 bra DONE;
    add.u32 %r1, %r1, 1;
    add.u32 %r2, %r2, %r1;
    bra LOOP;
    DONE:
    vote.sync.ballot.b32 %r3, 1, -1;
    sub.u32 %out, %r2, %r3;
    sub.u32 %out, %out, 1;
    """
    found = lanewise(body, integers(range(32)))
    assert found.tolist() == [n * (n + 1) // 2 for n in range(32)]


def test_a_shuffle_of_lanes_that_are_elsewhere_is_refused() -> None:
    body = PARTING.replace("MEET:\n", "").replace("bra.uni MEET;", "")
    early = body.replace("mov.b32 %r1, 20;", "shfl.sync.bfly.b32 %out, %r0, 1, 31, -1;")
    with pytest.raises(Refused, match="lanes it names are elsewhere: shfl"):
        lanewise(early, integers(range(32)))


def test_a_barrier_that_not_all_lanes_reach_is_refused() -> None:
    body = "setp.lt.u32 %p0, %tid, 7; @%p0 bra END; bar.sync 0; END: mov.b32 %r0, 0;"
    with pytest.raises(Refused, match="a barrier without the whole warp"):
        launch(body)
